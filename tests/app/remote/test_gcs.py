"""Stores in Google Cloud Storage, against a server that others wrote (gcp-storage-emulator), over its own protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.location import Remote
from app.remote.local_copy import SourceError
from app.remote.mirror import Mirror
from tests.app.client import serving
from tests.app.remote.buckets import Bucket, server_process
from tests.app.remote.stores import answer, contents, write
from tests.app.remote.web import tar_folder
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.slow


class GcsBucket(Bucket):
    """Bucket of Google Cloud Storage."""

    def put(self, key: str, data: bytes) -> None:
        to = "/upload/storage/v1/b/bucket/o"
        self.client.post(to, params={"uploadType": "media", "name": key}, content=data).raise_for_status()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("gcsfs", reason="Google Cloud Storage needs the extra [remote]; see 'make scale'")
    pytest.importorskip("gcp_storage_emulator", reason="the server is not installed; see 'make scale'")
    with server_process("gcs_server.py") as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsBucket]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    with httpx.Client(base_url=server, timeout=PATIENCE_S, trust_env=False) as client:
        yield GcsBucket(client)


def test_a_prefix_is_served_and_what_is_put_there_later_too(bucket: GcsBucket, store: Path, tmp_path: Path) -> None:
    bucket.put_folder(store)
    more = {"store_dir": tmp_path / "stores", "store_poll_s": 0.05, "reload_interval_s": 0.05, "warmup": False}
    with serving("gs://bucket/models", **more) as client:  # type: ignore[arg-type]  # as a person writes it
        assert (answer(client), answer(client, "two")) == (1.0, 2.0)
        write(store, "one", 11)
        bucket.put("models/one/1/model.pnnx.param", (store / "one/1/model.pnnx.param").read_bytes())
        until(lambda: answer(client) == 11.0)
        assert answer(client, "two") == 2.0


def test_an_archive_is_served_with_its_digest_and_with_no_other(bucket: GcsBucket, store: Path, tmp_path: Path) -> None:
    data = tar_folder(store, "w:gz")
    bucket.put("some/models.tar.gz", data)
    there = Mirror(Remote("gs://bucket/some/models.tar.gz", hashlib.sha256(data).hexdigest()), tmp_path / "a", 2**30)
    assert there.refresh() and not there.refresh()
    assert contents(there.local_copy.store) == contents(store)
    with pytest.raises(SourceError, match=f"{hashlib.sha256(data).hexdigest()}.*{'0' * 64}"):
        Mirror(Remote("gs://bucket/some/models.tar.gz", "0" * 64), tmp_path / "b", 2**30).refresh()


def test_a_large_file_comes_whole(bucket: GcsBucket, tmp_path: Path) -> None:
    data = bytes(range(256)) * 80_000  # of some 20 MB, more than two of the pieces it is read in
    bucket.put("large/one/1/model.pnnx.bin", data)
    there = Mirror(Remote("gs://bucket/large"), tmp_path / "stores", 2**30)
    there.refresh()
    assert (there.local_copy.store / "one/1/model.pnnx.bin").read_bytes() == data


@pytest.mark.parametrize(
    "url, why",
    [
        ("gs://no-such-bucket/models", "it does not exist"),
        ("gs://bucket/nothing", "it does not exist|has no files: expected the folder of a store"),
        ("gs://bucket/none.tar", "it does not exist"),
    ],
)
def test_what_is_not_there_is_told(url: str, why: str, bucket: GcsBucket, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=why):
        Mirror(Remote(url), tmp_path / "stores", 2**30).refresh()
