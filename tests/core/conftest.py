"""Properties are tried on a loaded two-core machine: no deadline for one example, and as many examples as take seconds in all."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
