"""Whether `make nightly` runs: there is time then for what else is tried on a few."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

IS_NIGHTLY: Final = settings.get_profile("project").max_examples < settings().max_examples
