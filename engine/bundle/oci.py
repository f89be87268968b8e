"""A bundle as an artifact in an OCI image layout, for registries and their tools.

    oci-layout                      version of the layout
    index.json                      the one manifest, by its tag
    blobs/sha256/DIGEST             that manifest, an empty config, and every file of the bundle

Each file is a layer annotated with its name, so that pulling the artifact restores the folder. OCI image
specification 1.1: https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md#guidelines-for-artifact-usage
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from engine.bundle.manifest import MANIFEST, PARAM, WEIGHTS, parse
from engine.errors import BundleError

LAYOUT: Final = "oci-layout"
ARTIFACT: Final = "application/vnd.pnnx-serve.bundle.v1"
_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"
_EMPTY: Final = b"{}"
_TITLE: Final = "org.opencontainers.image.title"
_TAG_NAME: Final = "org.opencontainers.image.ref.name"
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_KINDS: Final = {MANIFEST: "manifest.v1+json", PARAM: "param.v1", WEIGHTS: "weights.v1"}


def check_tag(tag: str) -> None:
    """Raise for an invalid image tag.

    Raises:
        BundleError: the tag has a character or length that is not allowed.
    """
    if not _TAG.fullmatch(tag):
        expected = "letters, digits, '_', '.' and '-', at most 128, neither '.' nor '-' first"
        raise BundleError("invalid image tag", found=repr(tag[:200]), expected=expected)


def lay_out(bundle: Path, place: Path, tag: str) -> None:
    """Turn the folder of a bundle into an image layout; its files are moved.

    Args:
        place: folder of the layout.
        tag: of the artifact in the layout.

    Raises:
        OSError: a file cannot be moved or written.
    """
    blobs = place / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    described = parse((bundle / MANIFEST).read_bytes())
    order = [MANIFEST, *described.files]
    layers = [_move(bundle / name, blobs) for name in order]
    bundle.rmdir()
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "artifactType": ARTIFACT,
        "config": _add(_EMPTY, blobs, _EMPTY_TYPE) | {"data": "e30="},
        "layers": layers,
        "annotations": {_TITLE: described.model, **_facts(described.host.level, described.engine)},
    }
    listed = _add(_dumped(manifest), blobs, _MANIFEST_TYPE)
    listed |= {"artifactType": ARTIFACT, "annotations": {_TAG_NAME: tag}}
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [listed]}
    _write(place / "index.json", _dumped(index))
    _write(place / LAYOUT, b'{"imageLayoutVersion":"1.0.0"}')


def _facts(level: str, engine: str) -> dict[str, str]:
    return {"io.pnnx-serve.bundle.level": level, "io.pnnx-serve.bundle.engine": engine}


def _move(path: Path, blobs: Path) -> dict[str, Any]:
    """Move a file to the blobs and return its descriptor."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    os.replace(path, blobs / digest)
    kind = f"application/vnd.pnnx-serve.bundle.{_kind(path.name)}"
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size, "annotations": {_TITLE: path.name}}


def _kind(name: str) -> str:
    return _KINDS.get(name, "blueprint.v1" if name.endswith(".blueprint") else "file.v1")


def _add(content: bytes, blobs: Path, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    _write(blobs / digest, content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def _dumped(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
        file.write(content)
