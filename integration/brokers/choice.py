"""Choices of the environment: brokers that run in containers, and their images."""

from __future__ import annotations

import os

from tests.needs import BROKERS, asks

__all__ = ["containers_wanted", "image"]


def containers_wanted(name: str) -> bool:
    """True if REDELIVERY_CONTAINERS (`1`, or names with commas) requests a container for this broker."""
    return asks("REDELIVERY_CONTAINERS", name, BROKERS)


def image(name: str, default: str) -> str:
    """Return the image of this broker: REDELIVERY_IMAGE_ARTEMIS and so on, or `default`."""
    return os.environ.get(f"REDELIVERY_IMAGE_{name.upper()}", "").strip() or default
