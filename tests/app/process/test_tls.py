"""Tests of TLS, with authorities made for the test."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from app.process.sockets import tls_context
from app.settings import Settings, SettingsError
from tests.app.process.test_server import ROOT, process
from tests.app.sample_models import elementwise, write_model
from tests.patience import PATIENCE_S


class Files:
    """Authority, server certificate and key as files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        server = self.authority.issue_cert("127.0.0.1")
        self.both, self.certificate, self.key = folder / "both.pem", folder / "cert.pem", folder / "key.pem"
        self.ca, self.locked = folder / "ca.pem", folder / "locked.pem"
        server.private_key_and_cert_chain_pem.write_to_path(self.both)
        server.cert_chain_pems[0].write_to_path(self.certificate)
        server.private_key_pem.write_to_path(self.key)
        self.authority.cert_pem.write_to_path(self.ca)
        self.locked.write_bytes(_encrypted(self.key.read_bytes(), b"word"))
        self.client = folder / "client.pem"
        self.authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(self.client)

    def trusting(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Return a client context that trusts the authority."""
        context = ssl.create_default_context(cafile=self.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def _encrypted(key: bytes, password: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    loaded = form.load_pem_private_key(key, None)
    return loaded.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(password))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    yield Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_settings_tls_certificate_tls_key_and_tls_key_password_make_the_server_speak_tls(
    store: Path, files: Files, workers: int
) -> None:
    own: dict[str, Any] = {"tls_certificate": files.certificate, "tls_key": files.locked, "tls_key_password": "word"}
    with process(store, workers=workers, **own) as server:
        assert server.url.startswith("https://")
        with httpx.Client(base_url=server.url, verify=files.trusting(), timeout=PATIENCE_S) as client:
            assert client.get("/health/live").status_code == 200
            large = [[1.0, 2.0, 3.0]] * 50_000  # more than a buffer of the socket, both ways
            answer = client.post("/infer", json={"inputs": large}, headers={"accept": "application/x-npy"})
            assert answer.status_code == 200 and len(answer.content) > 600_000
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/health/live", verify=ssl.create_default_context(), timeout=PATIENCE_S)
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https", "http") + "/health/live", timeout=PATIENCE_S)
        server.signal()
        status, log = server.wait()
    assert status == 0, log
    assert "Traceback" not in log and "word" not in log


@pytest.mark.slow
@pytest.mark.parametrize("has_tls", [True, False])
def test_the_images_health_check_finds_the_server_with_tls_and_without(
    store: Path, files: Files, has_tls: bool
) -> None:
    found = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])\n", (ROOT / "Dockerfile").read_text(), re.DOTALL)
    assert found is not None
    _, *arguments = json.loads(found[1])
    own = {"tls_certificate": files.both} if has_tls else {}
    with process(store, keys="infer: 0123456789abcdef", **own) as server:
        port = server.url.rpartition(":")[2]
        given = {"PNNX_SERVE_PORT": port, "PNNX_SERVE_TLS_CERTIFICATE": str(files.both) if has_tls else ""}
        done = subprocess.run([sys.executable, *arguments], env={**os.environ, **given}, timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.slow
def test_setting_tls_client_ca_requires_a_client_certificate(store: Path, files: Files) -> None:
    with process(store, tls_certificate=files.both, tls_client_ca=files.ca) as server:
        live = f"{server.url}/health/live"
        assert httpx.get(live, verify=files.trusting(files.client), timeout=PATIENCE_S).status_code == 200
        other = trustme.CA().issue_cert("client@example.org")
        stranger = files.trusting()
        other.configure_cert(stranger)
        for context in (files.trusting(), stranger):
            with pytest.raises(httpx.HTTPError):
                httpx.get(live, verify=context, timeout=PATIENCE_S)
        assert httpx.get(live, verify=files.trusting(files.client), timeout=PATIENCE_S).status_code == 200


def test_old_versions_of_tls_are_not_spoken(files: Files) -> None:
    context = tls_context(Settings(tls_certificate=files.both))
    assert context is not None and context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(Settings()) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tls_key": "key"}, r"^tls_key needs tls_certificate"),
        ({"tls_client_ca": "ca"}, r"^tls_client_ca needs tls_certificate"),
        ({"tls_certificate": "nowhere"}, r"^tls_certificate '.*nowhere': No such file"),
        ({"tls_certificate": "certificate"}, r"^tls_certificate '.*cert.pem': cannot be read"),
        ({"tls_certificate": "certificate", "tls_key": "client"}, r"tls_key '.*': cannot be read: KEY_VALUES"),
        ({"tls_certificate": "certificate", "tls_key": "locked"}, r"does the key need tls_key_password"),
        ({"tls_certificate": "certificate", "tls_key": "locked", "tls_key_password": "guess"}, "cannot be read"),
        ({"tls_certificate": "both", "tls_client_ca": "nowhere"}, r"^tls_client_ca '.*nowhere': No such file"),
        ({"tls_certificate": "both", "tls_client_ca": "key"}, r"^tls_client_ca '.*': cannot be read"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_reported_and_no_password_is_asked(
    files: Files, tmp_path: Path, given: dict[str, str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {**vars(files), "nowhere": tmp_path / "nowhere"}
    settings = {name: value if name == "tls_key_password" else paths[value] for name, value in given.items()}
    with pytest.raises(SettingsError, match=told) as caught:
        tls_context(Settings(**settings))
    assert "guess" not in str(caught.value) and capfd.readouterr() == ("", "")
