"""What a client says when it loads or unloads a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.errors import RefusedError
from app.messages import brief, cut, quoted

_LOAD: Final = ("config",)
_UNLOAD: Final = ("unload_dependents",)
_FILE: Final = "file:"


def read_load(document: Mapping[str, Any]) -> str | None:
    """The config to take in region_slice of the model's own, as JSON; None where that holds.

    Raises:
        RefusedError: files are sent along, or something that nobody knows.
    """
    parameters = _parameters(document)
    for key in parameters:
        if key.startswith(_FILE):
            raise RefusedError(
                f"parameter '{cut(key)}': files are not taken from requests, expected them in the store's folder"
            )
    _check(parameters, _LOAD)
    config = parameters.get("config")
    if config is not None and not isinstance(config, str):
        raise RefusedError(f"parameter 'config': found {brief(config)}, expected JSON as text")
    return config


def check_unload(document: Mapping[str, Any]) -> None:
    """No model here depends on another one, so there is nothing to be said.

    Raises:
        RefusedError: something else is said.
    """
    parameters = _parameters(document)
    _check(parameters, _UNLOAD)
    wanted = parameters.get("unload_dependents")
    if wanted is not None and not isinstance(wanted, bool):
        raise RefusedError(f"parameter 'unload_dependents': found {brief(wanted)}, expected true or false")


def _parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RefusedError(f"parameters: found {brief(parameters)}, expected a JSON object")
    return parameters


def _check(parameters: Iterable[str], known: tuple[str, ...]) -> None:
    for key in parameters:
        if key not in known:
            raise RefusedError(f"unknown parameter '{cut(key)}', expected one of {quoted(known)}")
