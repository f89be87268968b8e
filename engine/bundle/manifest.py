"""manifest.json of a bundle: its files, and the machines and the engine it is for.

{
  "format": "pnnx-serve bundle", "version": 1,
  "model": "resnet18",
  "engine": {"version": "0.1.0", "sources": SHA-256 of the engine's sources},
  "host": {"level": "avx512", "processor": "...", "caches": {"line": 64, "first": 32768, "second": ..., "last": ...}},
  "programs": [{"file": "KEY.blueprint", "inputs": [{"shape": [1, 3, 224, 224], "dtype": "float32"}]}],
  "files": {"model.pnnx.param": {"bytes": 12345, "sha256": "..."}, ...},
  "sha256": of the rest of the manifest
}

``caches`` is null for a bundle that runs on every machine of its level. The hash over the manifest detects accidental
damage; it does not authenticate the author.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.errors import BundleError

MANIFEST: Final = "manifest.json"
PARAM: Final = "model.pnnx.param"
WEIGHTS: Final = "model.pnnx.bin"
FORMAT: Final = "pnnx-serve bundle"
VERSION: Final = 1
MAX_BYTES: Final = 4 << 20
MAX_FILES: Final = 4096
_CACHES: Final = ("line", "first", "second", "last")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PROGRAM: Final = re.compile(r"([0-9a-f]{64})\.blueprint")
_LONGEST_NAME: Final = 255
_LARGEST: Final = 1 << 48


@dataclass(frozen=True, slots=True)
class StatedFile:
    """Size and hash of a file of the bundle."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFile:
    """A program and the inputs it was compiled for.

    Args:
        key: of its cache entry, 64 hexadecimal digits; the file is named after it.
        inputs: shapes and numpy dtype names.
    """

    key: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def file(self) -> str:
        """Name of the file in the bundle's folder."""
        return f"{self.key}.blueprint"

    def describe(self) -> dict[str, Any]:
        """Return the program as plain data."""
        return {"file": self.file, "inputs": [{"shape": list(shape), "dtype": dtype} for shape, dtype in self.inputs]}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClass:
    """The machines a bundle is for.

    Args:
        level: ``avx512``, ``avx2``, ``sse`` or ``neon``.
        processor: the vendor's name, for display.
        caches: sizes in bytes: of a line, of the first, second and last level; None for all machines of the level.
    """

    level: str
    processor: str
    caches: tuple[int, int, int, int] | None

    def describe(self) -> dict[str, Any]:
        """Return the class as plain data."""
        sizes = None if self.caches is None else dict(zip(_CACHES, self.caches, strict=True))
        return {"level": self.level, "processor": self.processor, "caches": sizes}

    @property
    def key(self) -> str:
        """Text that is equal only for equal classes."""
        return f"{self.level} {self.caches}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Contents and origin of a bundle.

    Args:
        engine: version of the package that made it, for display.
        sources: hash of the engine's sources; programs run only with exactly these sources.
        files: all files of the folder but the manifest, by name.
    """

    model: str
    engine: str
    sources: str
    host: HostClass
    programs: tuple[ProgramFile, ...]
    files: Mapping[str, StatedFile]

    def describe(self) -> dict[str, Any]:
        """Return the manifest as plain data, without its hash."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "engine": {"version": self.engine, "sources": self.sources},
            "host": self.host.describe(),
            "programs": [each.describe() for each in self.programs],
            "files": {name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in self.files.items()},
        }

    def print(self) -> bytes:
        """Return the content of the file."""
        data = self.describe()
        return json.dumps({**data, "sha256": _hash(data)}, indent=1).encode() + b"\n"


def parse(content: bytes) -> Manifest:
    """Parse a manifest.

    Raises:
        BundleError: it is damaged or of another format.
    """
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise BundleError("not the manifest of a bundle", where=MANIFEST)
        if data.get("version") != VERSION:
            found = f"version {data.get('version')}"
            raise BundleError("unsupported format", where=MANIFEST, found=found, expected=VERSION)
        stated = data.pop("sha256", None)
        found = _hash(data)
        if stated != found:
            raise BundleError("the manifest was altered", where=MANIFEST, found=f"sha256 {found}", expected=stated)
        return _manifest(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BundleError(
            "the manifest is damaged", where=MANIFEST, found=f"{type(error).__name__}: {error}"[:200]
        ) from None


def _hash(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _manifest(data: Mapping[str, Any]) -> Manifest:
    """Build the manifest, checking each value.

    Raises:
        KeyError, TypeError, ValueError: a value is missing or invalid.
    """
    files = {_name(name): _stated(each) for name, each in _limited(data["files"].items())}
    programs = tuple(_program(each, files) for each in _limited(data["programs"]))
    for name in (PARAM, WEIGHTS):
        if name not in files:
            raise ValueError(f"'{name}' is not listed in 'files'")
    return Manifest(
        model=_text(data["model"]),
        engine=_text(data["engine"]["version"]),
        sources=_matched(_HASH, data["engine"]["sources"]),
        host=_host(data["host"]),
        programs=programs,
        files=files,
    )


def _limited(rows: Any) -> list[Any]:
    listed = list(rows)
    if len(listed) > MAX_FILES:
        raise ValueError(f"{len(listed)} rows, expected at most {MAX_FILES}")
    return listed


def _stated(row: Mapping[str, Any]) -> StatedFile:
    return StatedFile(_number(row["bytes"]), _matched(_HASH, row["sha256"]))


def _program(row: Mapping[str, Any], files: Mapping[str, StatedFile]) -> ProgramFile:
    file = _matched(_PROGRAM, row["file"])
    if file not in files:
        raise ValueError(f"'{file}' is not listed in 'files'")
    inputs = tuple((tuple(map(_number, each["shape"])), _text(each["dtype"])) for each in _limited(row["inputs"]))
    return ProgramFile(key=file.partition(".")[0], inputs=inputs)


def _host(row: Mapping[str, Any]) -> HostClass:
    sizes = row["caches"]
    caches = None
    if sizes is not None:
        line, first, second, last = (_number(sizes[name]) for name in _CACHES)
        caches = (line, first, second, last)
    return HostClass(level=_text(row["level"]), processor=_text(row["processor"]), caches=caches)


def is_plain_name(name: str) -> bool:
    """Return whether a name denotes a file in the folder itself, without a path."""
    return bool(name) and not set(name) & set("/\\\0") and name not in (".", "..") and len(name) <= _LONGEST_NAME


def _name(name: str) -> str:
    if not is_plain_name(name) or name == MANIFEST:
        raise ValueError(f"'{name[:_LONGEST_NAME]}' is not a valid name for a file of a bundle")
    return name


def _matched(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{str(value)[:80]!r} is not in the expected form")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{str(value)[:80]!r} is not a size")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError(f"{str(value)[:80]!r} is not a name")
    return value
