"""A bundle in an OCI image layout conforms to image specification 1.1, and pulling it restores the bundle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler.bundling import writing
from engine.errors import BundleError
from tests.engine.compiler.cache.keeping import X, convolution


def layout(folder: Path, tag: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    session = engine.Session(convolution(), cache=None, threads=1)
    session.save_bundle(folder, name="net", tag=tag, files={"config.toml": b"", "empty": b""})
    return folder


def blob(folder: Path, descriptor: dict[str, Any]) -> bytes:
    """Return the blob of a descriptor after checking size and digest."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    content = (folder / "blobs" / algorithm / digest).read_bytes()
    assert (hashlib.new(algorithm, content).hexdigest(), len(content)) == (digest, descriptor["size"])
    return content


def test_pulling_it_restores_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = layout(tmp_path / "oci", "v1.2", monkeypatch)
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((folder / "index.json").read_text())
    assert (index["schemaVersion"], index["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    (listed,) = index["manifests"]
    assert listed["annotations"] == {"org.opencontainers.image.ref.name": "v1.2"}
    image = json.loads(blob(folder, listed))
    assert (image["schemaVersion"], image["mediaType"]) == (2, listed["mediaType"])
    assert image["artifactType"] == listed["artifactType"] == "application/vnd.pnnx-serve.bundle.v1"
    assert (
        image["config"]["mediaType"] == "application/vnd.oci.empty.v1+json" and blob(folder, image["config"]) == b"{}"
    )
    pulled = tmp_path / "pulled"
    pulled.mkdir(mode=0o755)
    for layer in image["layers"]:
        (pulled / layer["annotations"]["org.opencontainers.image.title"]).write_bytes(blob(folder, layer))
    blobs = {each["digest"] for each in (*image["layers"], image["config"], listed)}
    assert {f"sha256:{path.name}" for path in (folder / "blobs" / "sha256").iterdir()} == blobs
    assert {path.name for path in folder.iterdir()} == {"oci-layout", "index.json", "blobs"}
    for path in pulled.iterdir():
        path.chmod(0o644)
    found = engine.Session(engine.load(pulled), cache=None, threads=1)
    np.testing.assert_array_equal(found.run([X])[0], engine.Session(convolution(), cache=None, threads=1).run([X])[0])
    assert found.describe()["compiler"]["is_cached"] is True


@pytest.mark.parametrize("tag", ["", "a b", "../x", ".hidden", "x" * 129, "a:b"])
def test_an_invalid_tag_is_rejected_before_anything_is_written(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BundleError, match="invalid image tag"):
        layout(tmp_path / "oci", tag, monkeypatch)
    assert not list(tmp_path.iterdir())
