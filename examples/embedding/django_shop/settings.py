"""Django's settings, including those of the broker, next to those of the database."""

from __future__ import annotations

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "for this example only")
INSTALLED_APPS = ["orders"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}}
REDELIVERY_URL = os.environ["REDELIVERY_URL"]
