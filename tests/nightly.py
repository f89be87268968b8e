"""Flag of `make nightly`, which has time for tests that otherwise run on a few samples."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

IS_NIGHTLY: Final = settings.get_profile("project").max_examples < settings().max_examples
