"""Text printed when the server is up: address, a request to try, models, threads."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.codec.answers import dump_json
from app.models.model import Model
from app.models.registry.version import Entry, State, Version
from app.render.table import aligned
from app.serving.dataplane import DataPlane
from app.signature import describe

_PICTURES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
_MAX_ELEMENTS: Final = 64


def banner(plane: DataPlane, url: str, grpc_port: int | None = None) -> str:
    """Return the text; every model has a row, a failed one with its reason.

    Args:
        plane: models and settings of the server.
        url: address of the server.
        grpc_port: port of gRPC, or None.
    """
    lines = ["", f"  console    {url}/", f"  try        {example(plane, url)}"]
    if grpc_port is not None:
        lines.append(f"  grpc       {urlsplit(url).hostname}:{grpc_port}")
    if (state := plane.unready_reason()) is not None:
        lines.append(f"  not ready  {state}")
    if failed := [entry.name for entry in plane.store.entries if entry.state is State.FAILED]:
        store = shlex.quote(str(plane.settings.store))
        lines.append(f"  next       pnnx-serve check {shlex.join(failed)} --store {store}")
    rows = [("MODEL", "VERSION", "STATE", "TASK", "INPUTS"), *_rows(plane)]
    return "\n".join([*lines, "", *(f"  {line}" for line in aligned(rows)), "", f"  {plane.budget}", ""])


def example(plane: DataPlane, url: str) -> str:
    """Return a curl command that works as pasted: an example picture, a tensor of zeros, or the list of models."""
    lines = [line for entry in _by_preference(plane) for line in _lines(entry, plane, url)]
    return lines[0] if lines else f"curl -s{_key(plane)} {url}/models"


def _by_preference(plane: DataPlane) -> list[Entry]:
    ready = [entry for entry in plane.store.entries if entry.state is State.READY]
    default = plane.store.default_name
    return sorted(ready, key=lambda entry: entry.name != default)


def _lines(entry: Entry, plane: DataPlane, url: str) -> Iterator[str]:
    model = entry.versions[-1].model
    key = _key(plane)
    query = "" if entry.name == plane.store.default_name else f"?model={entry.name}"
    target = shlex.quote(f"{url}/infer{query}") if query else f"{url}/infer"
    picture = _example_picture(entry.files.folder / "examples")
    if model is None:
        return
    if picture is not None and model.signature.picture_input is not None:
        kind = _PICTURES[picture.suffix.lower()]
        yield f"curl -s --data-binary {shlex.quote(f'@{picture}')} -H 'content-type: {kind}'{key} {target}"
    zeros = model.example_inputs() if isinstance(model, Model) else None
    if zeros is not None and sum(array.size for array in zeros.values()) <= _MAX_ELEMENTS:
        body = dump_json({"inputs": {name: array.tolist() for name, array in zeros.items()}}).decode()
        yield f"curl -s -H 'content-type: application/json' -d {shlex.quote(body)}{key} {target}"


def _key(plane: DataPlane) -> str:
    """Return the header for a key if the server requires one."""
    return " -H 'authorization: Bearer KEY'" if plane.settings.has_keys else ""


def _example_picture(folder: Path) -> Path | None:
    pictures = sorted(path for path in folder.glob("*") if path.suffix.lower() in _PICTURES)
    return pictures[len(pictures) // 3] if pictures else None


def _rows(plane: DataPlane) -> Iterator[tuple[str, ...]]:
    for entry in plane.store.entries:
        task = entry.files.config.task
        if not entry.versions:
            yield (entry.name, "-", entry.state.value, task, entry.reason or "")
        for version in entry.versions:
            yield (entry.name, str(version.number), version.state.value, task, _inputs(version))


def _inputs(version: Version) -> str:
    if version.model is None:
        return version.reason or ""
    return ", ".join(f"{port.name} {describe(port)}" for port in version.model.signature.inputs)
