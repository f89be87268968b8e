"""Addresses of stores: which there are, and what is told of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from app.location import Remote, locate
from app.settings import Settings, SettingsError

DIGEST = hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    "text, told",
    [
        ("s3://bucket/some/models", "s3://bucket/some/models"),
        ("gs://bucket", "gs://bucket"),
        ("https://example.org:8443/model.tar", "https://example.org:8443/model.tar"),
        ("https://me:geheim@example.org/model.tar?X-Amz-Signature=geheim", "https://example.org/model.tar"),
        (f"http://example.org/model.tgz#sha256={DIGEST}", "http://example.org/model.tgz"),
        ("http://127.0.0.1:9000/models", "http://127.0.0.1:9000/models"),
        ("http://[::1]/models", "http://[::1]/models"),
        ("HTTPS://example.org/models/", "https://example.org/models/"),
    ],
)
def test_an_address_is_told_without_what_is_secret_in_it(text: str, told: str) -> None:
    settings = Settings.from_env({"PNNX_SERVE_STORE": text})
    assert isinstance(settings.store, Remote)
    assert str(settings.store) == told
    assert "geheim" not in f"{settings!r} {settings.store!r} {settings.store_folder}"


@pytest.mark.parametrize(
    "text, why",
    [
        ("ftp://example.org/geheim", "found the scheme 'ftp', expected a folder, or one of s3, gs, https, http"),
        ("file:///geheim", "found the scheme 'file'"),
        ("s3:///geheim", "without a host or bucket"),
        ("s3://key:geheim@bucket/models", "credentials come from the environment"),
        (
            "s3://bucket/models?geheim",
            "found more than a path, expected s3://bucket/path: credentials come from the environment",
        ),
        ("https://example.org/models?token=geheim", "found a query"),
        ("https://example.org/model.tar#geheim", "found an unknown fragment, expected #sha256="),
        ("https://example.org/model.tar#sha256=geheim", "found an unknown fragment, expected #sha256="),
        ("http://example.org/geheim.tar", "found http://, where models can be modified in transit"),
        ("https://example.org:geheim/model.tar", "found an invalid address"),
        ("https://[geheim/model.tar", "found an invalid address"),
    ],
)
def test_what_is_no_address_of_a_store_is_refused_without_an_echo(text: str, why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"PNNX_SERVE_STORE": text})
    assert why in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_folder_stays_a_folder() -> None:
    assert Settings.from_env({"PNNX_SERVE_STORE": "/models"}).store == Path("/models")
    assert locate("C:/models") == "C:/models"
    assert Settings(store=Path("x")).store_folder == Path("x")


def test_another_signature_is_no_other_store() -> None:
    one, two = (Remote(f"https://example.org/model.tar?X-Amz-Signature={text}") for text in "ab")
    assert one.key == two.key
    assert one.key != Remote("https://example.org/other.tar").key
