"""Registry of translators: an operator of ONNX by its domain, its name and the version of its operator set."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from engine.onnx.translation.node import Node
    from engine.onnx.translation.value import Value

Results: TypeAlias = "Value | Sequence[Value] | None"
Translator: TypeAlias = Callable[["Node"], Results]

MICROSOFT: Final = "com.microsoft"
"""Domain of onnxruntime's own operators."""

_TRANSLATORS: Final[dict[tuple[str, str], list[tuple[int, Translator]]]] = {}


def translates(*types: str, since: int = 1, domain: str = "") -> Callable[[Translator], Translator]:
    """Return a decorator that registers a function as translator of these operators, from a version on.

    The function gets a Node and returns the values of its outputs, or None if it cannot translate the node, which is
    then expanded or refused.
    """

    def add(translator: Translator) -> Translator:
        for type in types:
            rows = _TRANSLATORS.setdefault((domain, type), [])
            rows.append((since, translator))
            rows.sort(key=lambda row: row[0])
        return translator

    return add


def translator_of(domain: str, type: str, version: int) -> Translator | None:
    """Return the newest translator that is not newer than the operator set; None if there is none."""
    _load()
    found = [translator for since, translator in _TRANSLATORS.get((domain, type), ()) if since <= version]
    return found[-1] if found else None


def known_types(domain: str = "") -> list[str]:
    """Return every translated type of a domain."""
    _load()
    return sorted(type for each, type in _TRANSLATORS if each == domain)


@lru_cache(maxsize=1)
def _load() -> None:
    from engine.onnx import translators

    for module in pkgutil.walk_packages(translators.__path__, f"{translators.__name__}."):
        importlib.import_module(module.name)
