"""The names of a network's classes, where exporters leave them: in the metadata of the file."""

from __future__ import annotations

import json
import re
from typing import Any, Final

KEYS: Final = ("labels", "names", "classes", "class_names")
MOST_LABELS: Final = 1 << 16
_LONGEST: Final = 1 << 20
_LONGEST_LABEL: Final = 200
# {0: 'person', 1: "driver's seat"}: a dictionary as Python prints it, which is no JSON.
_PAIR: Final = re.compile(r"""\s*(\d{1,6})\s*:\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*(?:,|$)""")


def labels_of(properties: Any) -> tuple[str, ...]:
    """Labels in the order of the classes, of the first property that has any; none where nothing can be read as such.

    A list of texts as JSON, a dictionary from numbers to texts as JSON or Python, or one text a line.
    """
    found = {each.key: each.value for each in properties if each.key in KEYS and len(each.value) <= _LONGEST}
    for key in KEYS:
        labels = _labels(found[key].strip()) if key in found else None
        if labels and len(labels) <= MOST_LABELS and all(map(_is_label, labels)):
            return tuple(labels)
    return ()


def _labels(text: str) -> list[Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = _dictionary(text) if text.startswith("{") else [line.strip() for line in text.split("\n")]
    if isinstance(value, dict):
        return _in_order(value)
    return value if isinstance(value, list) and len(value) > 1 else None


def _dictionary(text: str) -> dict[str, str]:
    pairs, place = {}, 1
    while text[place:-1].strip() if place == 1 else place < len(text) - 1:
        match = _PAIR.match(text, place, len(text) - 1)
        if match is None:
            return {}
        pairs[match[1]] = match[2] if match[2] is not None else match[3]
        place = match.end()
    return pairs if text.endswith("}") else {}


def _in_order(pairs: dict[Any, Any]) -> list[Any] | None:
    """The texts, where they are numbered from nought without a gap."""
    keys = [str(k) for k in range(len(pairs))]
    return [pairs[key] for key in keys] if set(keys) == set(pairs) else None


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_LABEL and value.isprintable()
