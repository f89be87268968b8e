"""The description itself as JSON that every parser reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def render_json(description: Mapping[str, Any]) -> str:
    """Indented JSON, ASCII only: names may hold halves of surrogate pairs. NaN and infinities, which JSON has not, are
    written as the strings PNNX has for them: ``"nan"``, ``"inf"``, ``"-inf"``; complex numbers as Python spells them.
    """
    return json.dumps(_plain(description), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
