"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A loaded machine is no failure, and the same commit gives the same verdict in CI.
settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")
