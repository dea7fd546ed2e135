"""Settings of Django; those of the broker stand beside those of the database."""

from __future__ import annotations

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "for this example alone")
INSTALLED_APPS = ["orders"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}}
REDELIVERY_URL = os.environ["REDELIVERY_URL"]
