"""How many examples the property tests draw: few while one works, many where `CI` is set."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A busy machine draws slowly and runs late: neither is a failure of what is tested.
settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "thorough" if "CI" in os.environ else "quick"))
