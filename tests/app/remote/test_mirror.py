"""Stores on a web server: checked by digest, kept by content, never half there."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from app.location import Remote
from app.models.folder.identity import contents_of
from app.models.folder.repository import find_models
from app.remote import fetched
from app.remote.local_copy import SourceError
from app.remote.mirror import Mirror
from app.settings import Settings, SettingsError
from tests.app.client import serving
from tests.app.remote.stores import answer, contents, write
from tests.app.remote.web import Web, tar_folder, tar_of, web_server
from tests.patience import until

ROOT = Path(__file__).parents[3]


def mirror(web: Web, tmp_path: Path, path: str = "models", digest: str | None = None, limit: int = 2**30) -> Mirror:
    return Mirror(Remote(f"{web.url}/{path}", digest), tmp_path / "stores", limit)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_folder_with_sums_is_fetched_once_and_again_only_what_changes(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store)
    there = mirror(web, tmp_path)
    assert there.refresh()
    assert contents(there.local_copy.store) == contents(store)
    before = {found.name: contents_of(found) for found in find_models(there.local_copy.store)}
    web.asked.clear()
    assert not there.refresh()
    assert {line.split()[1] for line in web.asked} == {"/models/SHA256SUMS"}

    write(store, "two", 22)
    web.put(store)
    web.asked.clear()
    assert there.refresh()
    assert not any("/one/" in line for line in web.asked)
    after = {found.name: contents_of(found) for found in find_models(there.local_copy.store)}
    assert after["one"] == before["one"] and after["two"] != before["two"]


@pytest.mark.parametrize("mode, name", [("w", "models.tar"), ("w:gz", "models.tar.gz"), ("w:gz", "models.tgz")])
def test_an_archive_is_fetched_when_its_etag_is_another(
    mode: str, name: str, web: Web, store: Path, tmp_path: Path
) -> None:
    web.files[name] = tar_folder(store, mode)
    there = mirror(web, tmp_path, name)
    assert there.refresh() and not there.refresh()
    assert contents(there.local_copy.store) == contents(store)
    write(store, "three", 3)
    web.files[name] = tar_folder(store, mode)
    assert there.refresh()
    assert [found.name for found in find_models(there.local_copy.store)] == ["one", "three", "two"]


def test_an_archive_with_a_digest_in_its_address_is_asked_for_once(web: Web, store: Path, tmp_path: Path) -> None:
    data = web.files["models.tar"] = tar_folder(store)
    there = mirror(web, tmp_path, "models.tar", sha256(data))
    assert there.refresh()
    web.asked.clear()
    assert not there.refresh()
    assert web.asked == []


def test_a_digest_beside_an_archive_is_held_against_it(web: Web, store: Path, tmp_path: Path) -> None:
    data = web.files["models.tar"] = tar_folder(store)
    web.files["models.tar.sha256"] = f"{sha256(data)}  models.tar\n".encode()
    there = mirror(web, tmp_path, "models.tar")
    assert there.refresh() and not there.refresh()
    web.files["models.tar.sha256"] = f"{sha256(b'other')}\n".encode()
    with pytest.raises(SourceError, match=" has a wrong digest: found sha256 .*, expected"):
        there.refresh()
    assert contents(there.local_copy.store) == contents(store)
    del web.files["models.tar.sha256"]
    with pytest.raises(SourceError, match=r"no longer has a \.sha256"):
        there.refresh()


def damaged(web: Web) -> None:
    web.files["models/one/1/model.pnnx.param"] = web.files["models/one/1/model.pnnx.param"].replace(b"11", b"12")


def missing(web: Web) -> None:
    web.files["models/SHA256SUMS"] += f"{sha256(b'')}  one/2/model.pnnx.bin\n".encode()


def unlisted(web: Web) -> None:
    del web.files["models/SHA256SUMS"]


def emptied(web: Web) -> None:
    web.files["models/SHA256SUMS"] = b""


def nonsense(web: Web) -> None:
    web.files["models/SHA256SUMS"] = b"<html>not here</html>"


def climbing(web: Web) -> None:
    web.files["models/SHA256SUMS"] += f"{sha256(b'')}  ../../etc/passwd\n".encode()


def down(web: Web) -> None:
    web.status = 503


def denied(web: Web) -> None:
    web.status = 403


def cut(web: Web) -> None:
    web.cuts = True
    web.files["models/SHA256SUMS"] += b"\n"


@pytest.mark.parametrize(
    "change, why",
    [
        (damaged, "'one/1/model.pnnx.param' of http://localhost:[0-9]+/models has a wrong digest"),
        (missing, "'one/2/model.pnnx.bin' .* it does not exist"),
        (unlisted, "no longer has a SHA256SUMS"),
        (emptied, "names no file"),
        (nonsense, "line 1: found '<html>not here</html>', expected a digest and a file"),
        (climbing, "'../../etc/passwd' is not allowed in a store"),
        (down, "503"),
        (denied, "access is denied"),
        (cut, "cannot be read"),
    ],
)
def test_what_goes_wrong_is_told_and_changes_nothing(
    change: Callable[[Web], None], why: str, web: Web, store: Path, tmp_path: Path
) -> None:
    web.put(store)
    there = mirror(web, tmp_path)
    there.refresh()
    before = contents(there.local_copy.store)
    write(store, "one", 11)
    web.put(store)
    change(web)
    with pytest.raises(SourceError, match=why):
        there.refresh()
    assert contents(there.local_copy.store) == before
    assert not any((tmp_path / "stores").glob("*/incoming/*"))
    web.status, web.cuts = 200, False
    web.put(store)
    assert there.refresh()
    assert contents(there.local_copy.store) == contents(store)


def test_a_store_is_no_larger_than_the_limit(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store)
    web.files["models.tar"] = tar_folder(store)
    for path in ("models", "models.tar"):
        with pytest.raises(SourceError, match="store_max_bytes|unpacks to more"):
            mirror(web, tmp_path, path, limit=300).refresh()


def test_without_an_etag_an_archive_needs_a_digest(web: Web, store: Path, tmp_path: Path) -> None:
    data = web.files["models.tar"] = tar_folder(store)
    web.has_tags = False
    with pytest.raises(SourceError, match=r"without an ETag or a time: expected a \.sha256 file beside it"):
        mirror(web, tmp_path, "models.tar").refresh()
    assert mirror(web, tmp_path, "models.tar", sha256(data)).refresh()


def test_a_folder_of_a_web_server_needs_sums(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store, sums=False)
    with pytest.raises(SourceError, match="a web server cannot list files: expected a SHA256SUMS"):
        mirror(web, tmp_path).refresh()


def test_a_hostile_archive_leaves_nothing_behind(web: Web, tmp_path: Path) -> None:
    web.files["models.tar"] = tar_of([("one/1/model.pnnx.param", b"x"), ("../../up", b"x")])
    with pytest.raises(SourceError, match="is not allowed in a store"):
        mirror(web, tmp_path, "models.tar").refresh()
    assert not any(path.is_file() for path in tmp_path.rglob("*") if path.name not in ("lock",))


def test_passwords_and_signatures_are_in_no_message_and_no_log(
    web: Web, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host = web.url.removeprefix("http://")
    there = Mirror(Remote(f"http://me:geheim@{host}/none.tar?signature=streng"), tmp_path / "stores", 2**20)
    for status in (200, 401, 500):
        web.status = status
        with pytest.raises(SourceError) as caught:
            there.refresh()
        assert "geheim" not in str(caught.value) and "streng" not in str(caught.value)
    assert "geheim" not in caplog.text and "streng" not in caplog.text
    assert any("Authorization: Basic" in text for text in web.headers)


def test_a_folder_for_stores_that_others_may_write_to_is_not_used(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store)
    there = mirror(web, tmp_path)
    there.local_copy.folder.chmod(0o777)
    with pytest.raises(SourceError, match="other users may write to the folder for stores"):
        mirror(web, tmp_path)


def test_of_several_processes_one_fetches(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store)
    mirrors = [mirror(web, tmp_path) for _ in range(4)]
    done: list[bool] = []
    threads = [threading.Thread(target=lambda each=each: done.append(each.refresh(60.0))) for each in mirrors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]
    assert web.asked.count("GET /models/one/1/model.pnnx.bin") == 1


def test_unused_states_are_dropped(web: Web, store: Path, tmp_path: Path) -> None:
    there = mirror(web, tmp_path)
    for term in range(5):
        write(store, "one", term)
        web.put(store)
        there.refresh()
    assert len(list((there.local_copy.folder / "stores").iterdir())) == 2
    assert len(list((there.local_copy.folder / "trees").iterdir())) == 3


def test_an_index_of_another_state_is_not_believed(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store)
    there = mirror(web, tmp_path)
    there.refresh()
    index = there.local_copy.folder / "index.json"
    for text in ("", "[]", "{}", json.dumps({**json.loads(index.read_text()), "state": "other"})):
        index.write_text(text)
        assert there.refresh()
        assert contents(there.local_copy.store) == contents(store)


def test_settings_store_poll_s_and_store_dir_keep_a_server_current_and_serving_when_the_source_is_down(
    web: Web, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    web.put(store)
    more = {"store_dir": tmp_path / "stores", "store_poll_s": 0.05, "reload_interval_s": 0.05, "warmup": False}
    with serving(f"{web.url}/models", **more) as client:  # type: ignore[arg-type]  # as a person writes it
        assert (answer(client), answer(client, "two")) == (1.0, 2.0)
        write(store, "one", 11)
        web.put(store)
        until(lambda: answer(client) == 11.0)
        web.status = 500
        until(lambda: "the previous state is served" in caplog.text)
        assert (answer(client), answer(client, "two")) == (11.0, 2.0)
        assert client.get("/health/ready").json() == {"ready": True}
        web.status = 200
        until(lambda: "is readable again" in caplog.text)
    assert any((tmp_path / "stores").iterdir())
    web.status = 500
    with serving(f"{web.url}/models", **more) as client:  # type: ignore[arg-type]
        assert answer(client) == 11.0


def test_a_server_whose_store_cannot_be_reached_says_so_and_serves_once_it_can(
    web: Web, store: Path, tmp_path: Path
) -> None:
    web.put(store)
    web.status = 500
    with serving(f"{web.url}/models", wait=False, store_dir=tmp_path / "stores") as client:  # type: ignore[arg-type]
        until(lambda: "cannot be read: ClientResponseError 500" in client.get("/health/ready").text)
        assert client.get("/health/ready").status_code == 503
        assert client.infer("one", [[0, 0]]).status_code == 503
        assert client.get("/health/live").status_code == 200
        web.status = 200
        until(lambda: client.get("/health/ready").status_code == 200)
        assert answer(client) == 1.0


def test_a_server_that_stops_waits_for_no_source(web: Web, tmp_path: Path) -> None:
    web.status = 500
    with serving(f"{web.url}/models", wait=False, store_dir=tmp_path / "stores"):  # type: ignore[arg-type]
        until(lambda: bool(web.asked))


def test_setting_store_max_bytes_bounds_what_is_fetched(web: Web, store: Path, tmp_path: Path) -> None:
    web.put(store)
    settings = Settings.from_env(
        {
            "PNNX_SERVE_STORE": f"{web.url}/models",
            "PNNX_SERVE_STORE_DIR": str(tmp_path / "stores"),
            "PNNX_SERVE_STORE_MAX_BYTES": "10",
        }
    )
    with pytest.raises(SourceError, match=r"found more than 10 bytes, expected at most store_max_bytes"):
        fetched(settings)


def test_the_command_line_lists_a_store_over_tls(store: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fetching needs the extra [remote]")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with web_server(context) as web:
        web.files["models.tar"] = tar_folder(store)
        command = [sys.executable, "-m", "app", "models", "--store", f"{web.url}/models.tar"]
        environ = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "ca.pem"), "XDG_CACHE_HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["MODEL", "one", "two"], done.stderr
        del environ["SSL_CERT_FILE"]
        environ["XDG_CACHE_HOME"] = str(tmp_path / "empty")  # a look that was just taken is not taken again
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
        assert done.returncode == 1
        assert "cannot be read: it cannot be reached (ClientConnectorCertificateError)" in done.stderr


@pytest.mark.parametrize("scheme, module", [("https", "fsspec"), ("s3", "s3fs"), ("gs", "gcsfs")])
def test_without_the_extra_it_is_named(
    scheme: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module != "fsspec":
        registry = pytest.importorskip("fsspec.registry", reason="fetching needs the extra [remote]")
        monkeypatch.delitem(registry._registry, scheme, raising=False)  # what another test has loaded
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError, match=rf"\({module}\): pip install 'pnnx-serve\[remote\]'"):
        fetched(Settings.from_env({"PNNX_SERVE_STORE": f"{scheme}://bucket/m.tar"}, store_dir=tmp_path))


def test_who_serves_a_folder_of_this_machine_loads_nothing_of_it() -> None:
    others = {"fsspec", "tarfile", "ray", "app.remote.mirror", "app.scale", "app.cli.deploy"}
    code = f"import sys, app.process.server; print({others} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
