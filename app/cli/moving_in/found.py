"""Model found in the files of another tool, and the JSON files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigError
from app.messages import cut
from app.models.folder.layout import BIN, ONNX, PARAM
from app.text_files import read_text

# Most bytes of a JSON file of a model, except its tokenizer.
MAX_JSON: Final = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Source of an import, and the flags of the command.

    Attributes:
        source: folder or file of the model.
        scratch: folder for files that are made.
        shapes: shapes of the inputs, for a model that does not tell them.
        file: name of the ONNX file, if there are several.
        may_run_code: whether Python code of the model may run.
    """

    source: Path
    scratch: Path
    shapes: tuple[str, ...] = ()
    file: str | None = None
    may_run_code: bool = False


@dataclass(slots=True, kw_only=True)
class Found:
    """Model of another tool.

    Attributes:
        files: its files by their names in the store.
        config: contents of config.toml; tables are dictionaries.
        name: default name in the store.
        notes: what the user should know.
    """

    files: dict[str, Path]
    config: dict[str, Any]
    name: str
    notes: list[str] = field(default_factory=list)

    @property
    def model(self) -> tuple[Path, ...]:
        """Return the ONNX file, or the pair."""
        return tuple(self.files[name] for name in (ONNX, PARAM, BIN) if name in self.files)


def model_name(text: str) -> str:
    """Return a text as the name of a model."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip("._-") or "model"


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if there is no such file.

    Raises:
        ConfigError: it cannot be read, or holds no object.
    """
    if not path.exists():
        return {}
    return parse_object(read_text(path, MAX_JSON), path.name)


def parse_object(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the object in a JSON text.

    Raises:
        ConfigError: it is no JSON, or no object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{name}: cannot be read: {cut(str(exc))}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: found {type(value).__name__}, expected an object")
    return value


def in_order(table: object) -> list[Any]:
    """Return the values of keys 0, 1, 2, ...; none if the keys are others."""
    if not isinstance(table, Mapping):
        return []
    keys = [str(index) for index in range(len(table))]
    return [table[key] for key in keys] if set(keys) == set(table) else []
