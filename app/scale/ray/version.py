"""Whether the Ray that is here is one that this can work with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from app.settings import SettingsError

OLDEST: Final = (2, 60)


def check_ray() -> str:
    """The version of Ray.

    Raises:
        SettingsError: it is not installed, or too old.
    """
    expected = ".".join(map(str, OLDEST))
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise SettingsError("Ray is not installed: pip install 'pnnx-serve[ray]'") from None
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if numbers < OLDEST:
        raise SettingsError(f"Ray {found} is too old, expected {expected} or newer: pip install -U 'pnnx-serve[ray]'")
    return found
