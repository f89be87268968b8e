"""Reading of TOML files in a model's folder, and messages about their keys."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from app.errors import ConfigError
from app.messages import did_you_mean, explain_validation, safe_text
from app.text_files import read_text

# Enough for the names of a hundred thousand classes; parsing takes at most a second.
MAX_BYTES: Final = 2**20
_MAX_DOTS: Final = 32
# A string may lack its end: each possible beginning matches, so that matching stays linear.
_STRING: Final = re.compile(
    r'''"""[\s\S]*?(?:"""|\Z)|\'{3}[\s\S]*?(?:\'{3}|\Z)|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|#[^\n]*'''
)
_BETWEEN_KEYS: Final = re.compile(r"[=,\[\]{}\n]")
_MAX_PROBLEMS: Final = 10
_MAX_VALUE: Final = 100


def check_links(path: Path, roots: Iterable[Path]) -> Path:
    """Return the path if its target lies below one of the roots.

    Raises:
        ConfigError: it does not.
    """
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a NUL byte; reading the file reports it
        return path
    if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        raise ConfigError(
            f"'{safe_text(path.name, 100)}' is a link, or behind a link, to a place outside the model's folder,"
            " expected a file inside it"
        )
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a file; none if there is no file.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    if not os.path.lexists(path):
        return {}
    text = read_text(path, MAX_BYTES)
    # The parser takes time proportional to the square of the number of a key's parts.
    if any(part.count(".") > _MAX_DOTS for part in _BETWEEN_KEYS.split(_STRING.sub("", text))):
        raise ConfigError("nested too deeply")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(safe_text(str(exc))) from None
    except ValueError as exc:  # a number with more digits than Python reads
        raise ConfigError(f"found a value that cannot be read: {safe_text(str(exc), _MAX_VALUE)}") from None


def problems(exc: ValidationError, known: Set[str], free: Sequence[str] = ()) -> list[str]:
    """Return one sentence per invalid key; for union types only the first error.

    Args:
        exc: what pydantic has found.
        known: names of all tables and keys; other parts of a location are types that were tried.
        free: tables whose keys are arbitrary.
    """
    found: dict[str, str] = {}
    errors = exc.errors(include_url=False)
    for error in errors:
        if error["type"] == "too_short" and any(_is_inside(other["loc"], error["loc"]) for other in errors):
            continue  # pydantic leaves out invalid items before it counts
        if len(found) == _MAX_PROBLEMS:
            return [*_lines(found), f"and more: {exc.error_count()} in all"]
        is_key = error["type"] == "extra_forbidden"  # else the location may end in the name of a type that was tried
        is_free = error["loc"][:1] and error["loc"][0] in free
        keys = [
            str(part)
            for part in error["loc"]
            if is_key or isinstance(part, int) or part in known or (is_free and part != "[key]")
        ]
        found.setdefault(".".join(keys), _sentence(error, known))
    return _lines(found)


def _is_inside(location: Sequence[int | str], other: Sequence[int | str]) -> bool:
    """Return whether a location is inside another one."""
    return len(location) > len(other) and location[: len(other)] == other


def _lines(found: Mapping[str, str]) -> list[str]:
    return [f"{safe_text(key, _MAX_VALUE)}: {sentence}" for key, sentence in found.items()]


def _sentence(error: Any, known: Set[str]) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key{did_you_mean(str(error['loc'][-1]), known)}"
    return explain_validation(error)
