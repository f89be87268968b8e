"""Stores in S3, against a server that others wrote (moto), over its own protocol."""

from __future__ import annotations

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

# Not checked by the server, but it tells by it that S3 is meant.
_SIGNED = "AWS4-HMAC-SHA256 Credential=AKIATEST/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00"


class S3Bucket(Bucket):
    """Bucket of S3."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(client)
        self.put("", b"")

    def put(self, key: str, data: bytes) -> None:
        self.client.put(f"/bucket/{key}" if key else "/bucket", content=data).raise_for_status()

    def delete(self, key: str) -> None:
        self.client.delete(f"/bucket/{key}").raise_for_status()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="S3 needs the extra [remote]; see 'make scale'")
    pytest.importorskip("moto", reason="the S3 server is not installed; see 'make scale'")
    with server_process("s3_server.py") as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Bucket]:
    for name, value in (("ENDPOINT_URL", server), ("ACCESS_KEY_ID", "AKIATEST"), ("SECRET_ACCESS_KEY", "geheim")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with httpx.Client(base_url=server, headers={"authorization": _SIGNED}, timeout=PATIENCE_S) as client:
        yield S3Bucket(client)


def test_a_prefix_is_served_and_what_is_put_there_later_too(bucket: S3Bucket, store: Path, tmp_path: Path) -> None:
    bucket.put_folder(store)
    bucket.put("models/two/", b"")  # what some tools put there for a folder
    more = {"store_dir": tmp_path / "stores", "store_poll_s": 0.05, "reload_interval_s": 0.05, "warmup": False}
    with serving("s3://bucket/models", **more) as client:  # type: ignore[arg-type]  # as a person writes it
        assert (answer(client), answer(client, "two")) == (1.0, 2.0)
        write(store, "one", 11)
        bucket.put("models/one/1/model.pnnx.param", (store / "one/1/model.pnnx.param").read_bytes())
        until(lambda: answer(client) == 11.0)
        assert answer(client, "two") == 2.0


def test_an_archive_is_served(bucket: S3Bucket, store: Path, tmp_path: Path) -> None:
    bucket.put("some/models.tar.gz", tar_folder(store, "w:gz"))
    there = Mirror(Remote("s3://bucket/some/models.tar.gz"), tmp_path / "stores", 2**30)
    assert there.refresh() and not there.refresh()
    assert contents(there.local_copy.store) == contents(store)


def test_a_large_file_comes_whole(bucket: S3Bucket, tmp_path: Path) -> None:
    data = bytes(range(256)) * 80_000  # of some 20 MB, more than two of the pieces it is read in
    bucket.put("large/one/1/model.pnnx.bin", data)
    there = Mirror(Remote("s3://bucket/large"), tmp_path / "stores", 2**30)
    there.refresh()
    assert (there.local_copy.store / "one/1/model.pnnx.bin").read_bytes() == data


@pytest.mark.parametrize("key", ["hostile/../../up", "hostile//up", "hostile/a\\b"])
def test_names_that_lead_out_of_the_store_are_refused(key: str, bucket: S3Bucket, tmp_path: Path) -> None:
    # httpx would tidy such a path up; a store of S3 has any name.
    bucket.put(key.replace("..", "%2E%2E"), b"x")
    bucket.put("hostile/ok", b"x")
    with pytest.raises(SourceError, match="is not allowed in a store"):
        Mirror(Remote("s3://bucket/hostile"), tmp_path / "stores", 2**30).refresh()
    bucket.delete(key.replace("..", "%2E%2E"))


@pytest.mark.parametrize(
    "url, why",
    [
        ("s3://no-such-bucket/models", "it does not exist"),
        ("s3://bucket/nothing", "has no files: expected the folder of a store"),
        ("s3://bucket/none.tar", "it does not exist"),
    ],
)
def test_what_is_not_there_is_told(url: str, why: str, bucket: S3Bucket, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=why):
        Mirror(Remote(url), tmp_path / "stores", 2**30).refresh()


def test_no_server_and_no_credentials_are_told_apart(
    bucket: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Remote("s3://bucket/models")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with pytest.raises(SourceError, match=r"cannot be reached \(EndpointConnectionError\)"):
            Mirror(there, tmp_path / "stores", 2**30).refresh()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceError, match="no credentials in the environment"):
        Mirror(there, tmp_path / "stores", 2**30).refresh()
