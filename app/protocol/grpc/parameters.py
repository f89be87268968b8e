"""Values of any kind: parameters of requests, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def read_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A map of parameters as values; one that is not set is None."""
    return {key: read_choice(value) for key, value in parameters.items()}


def read_choice(value: Any) -> Any:
    """The one that is set of a message with a choice of kinds."""
    kind = value.WhichOneof("parameter_choice")
    return None if kind is None else getattr(value, kind)


def read_lists(settings: Mapping[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    """A map of settings, each a list of texts: None where it is empty, one text where not a list belongs there.

    Args:
        lists: settings as they are; of these the kind is looked at.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        texts = list(value.value)
        is_list = isinstance(lists.get(key), list)
        found[key] = None if not texts else texts if is_list or len(texts) > 1 else texts[0]
    return found


def write_lists(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as such a map."""
    return {key: {"value": value if isinstance(value, list) else [str(value)]} for key, value in settings.items()}


def write_choices(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a map of messages with a choice of kinds."""
    return {key: {_kind(value): value} for key, value in settings.items()}


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool_param"
    return "uint32_param" if isinstance(value, int) else "string_param"
