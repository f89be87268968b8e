"""Tests of the Host and Origin headers that a server without keys accepts."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from app.http.access import OriginPolicy
from app.settings import Settings


def message(host: str | None, origin: str | None = None, /, **settings: Any) -> str | None:
    found = {b"host": host, b"origin": origin}
    headers = [(name, value.encode("latin-1")) for name, value in found.items() if value is not None]
    fault = OriginPolicy(Settings(**settings)).fault(headers)
    assert fault is None or fault.status == 403
    return None if fault is None else fault.message


@pytest.mark.parametrize(
    "host",
    [
        None, "", "127.0.0.1", "127.0.0.1:8000", "192.0.2.7:80", "[::1]:8000", "[2001:db8::1]", "localhost",
        "LOCALHOST:1", "localhost.", "server:8000", socket.gethostname(),
    ],
)  # fmt: skip
def test_addresses_and_names_that_cannot_be_registered_are_taken(host: str | None) -> None:
    assert message(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8000", "EVIL.example.", "127.0.0.1.evil.example", "localhost.evil.example",
        "[::1", "a.b:x",
    ],
)  # fmt: skip
def test_a_name_that_may_be_anybodys_is_refused(host: str) -> None:
    assert f"Host: found '{host}', expected" in (message(host) or "")


@pytest.mark.parametrize(
    "allowed, host, is_taken",
    [
        ("models.example.org", "models.example.org:443", True), ("models.example.org", "Models.Example.org", True),
        ("models.example.org", "x.models.example.org", False), ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False), ("*.example.org", "evilexample.org", False),
        ("*", "evil.example", True),
    ],
)  # fmt: skip
def test_allowed_hosts_name_others(allowed: str, host: str, is_taken: bool) -> None:
    assert (message(host, allowed_hosts=(allowed,)) is None) is is_taken


def test_the_name_that_the_server_listens_on_is_its_own() -> None:
    assert message("models.example.org:8000", host="models.example.org") is None


@pytest.mark.parametrize(
    "origin, host, is_taken",
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True), ("http://[::1]:8000", "[::1]:8000", True),
        ("http://localhost", "localhost:80", True), ("https://localhost", "localhost", True),
        ("https://localhost", "localhost:443", True), ("http://LOCALHOST:8000", "localhost:8000", True),
        ("http://localhost:9000", "localhost:8000", False), ("http://localhost", "localhost:8000", False),
        ("http://127.0.0.1:8000", "localhost:8000", False), ("https://evil.example", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False), ("", "127.0.0.1:8000", False), ("file://", "127.0.0.1:8000", False),
        ("http://127.0.0.1:8000", None, False), ("http://[", "[::1]", False), ("http://a:x", "a", False),
        ("http://127.0.0.1:8000.evil.example", "127.0.0.1:8000", False),
        ("http://127.0.0.1:8000@evil.example", "127.0.0.1:8000", False),
    ],
)  # fmt: skip
def test_an_origin_is_the_servers_own(origin: str, host: str | None, is_taken: bool) -> None:
    assert (message(host, origin) is None) is is_taken


def test_cors_origins_may_call_by_the_servers_own_names_only() -> None:
    page = "https://page.example"
    assert message("localhost:8000", page, cors_origins=(page,)) is None
    assert message("localhost:8000", page, cors_origins=("*",)) is None
    assert "Host" in (message("page.example", page, cors_origins=("*",)) or "")
    assert "Origin" in (message("localhost:8000", f"{page}:444", cors_origins=(page,)) or "")
