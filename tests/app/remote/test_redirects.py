"""Redirects: each leads to where the store's own address could lead, without what is secret, or nowhere."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from app.location import Remote
from app.remote.local_copy import SourceError
from app.remote.source import Source
from tests.app.remote.web import Web, web_server

pytest.importorskip("fsspec", reason="fetching needs the extra [remote]")
pytest.importorskip("aiohttp", reason="fetching needs the extra [remote]")

from aiohttp import ClientSession

from app.remote.redirects import MAX_HOPS, Redirects, refuse_redirects  # it needs both

DIGEST = hashlib.sha256(b"x").hexdigest()
ADDRESSES = {
    "store.test": "127.0.0.1",
    "inside.test": "127.0.0.1",
    "metadata.test": "169.254.169.254",
    "nought.test": "0.0.0.0",
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts below .test have addresses of this machine and its link."""
    real = socket.getaddrinfo

    def resolve(host: Any, *more: Any, **others: Any) -> Any:
        return real(ADDRESSES.get(host, host), *more, **others)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.fixture
def secure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server for store.test and inside.test over TLS, whose authority is trusted."""
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("store.test", "inside.test", "localhost").configure_cert(server)
    authority.configure_trust(client)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", client)
    with web_server(server) as web:
        yield web


def read(url: str, path: str = "file", digest: str | None = None) -> bytes | None:
    return Source(Remote(url, digest)).read_small(path, 1000)


def test_a_redirect_is_followed_and_what_is_told_of_a_file_is_of_where_it_leads(web: Web) -> None:
    with web_server() as other:
        other.files["x/there"] = b"data"
        for location in (f"{other.url}/x/there", f"{other.url.replace('localhost', '127.0.0.1')}/x/there#fragment"):
            web.redirects["/models/file"] = location
            assert read(f"{web.url}/models") == b"data"
        source = Source(Remote(f"{web.url}/models"))
        assert (source.look("file").size, source.look("file").tag) == (4, f'"{hashlib.md5(b"data").hexdigest()}" 4')
        assert {line.split()[1] for line in web.asked} == {"/models/file"}


@pytest.mark.parametrize("location", ["/x/there", "there", "../x/there", "?signature=x"])
def test_a_redirect_on_the_same_server_keeps_what_lets_one_in(web: Web, location: str) -> None:
    web.redirects["/x/file"] = location
    web.files |= {"x/there": b"data"} if "?" not in location else {"x/file": b"data"}
    assert read(f"{web.url.replace('http://', 'http://me:secret@')}/x") == b"data"
    assert all("Authorization: Basic" in text for text in web.headers)


def test_what_is_configured_for_a_host_is_sent_to_no_other(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.config import conf

    client = {"headers": {"authorization": "Bearer secret", "x-api-key": "secret"}, "cookies": {"session": "secret"}}
    monkeypatch.setitem(
        conf, "http", {"client_kwargs": client, "headers": {"x-more": "secret"}, "cookies": {"c": "secret"}}
    )
    with web_server() as other:
        other.files["there"] = b"data"
        web.redirects["/file"] = f"{other.url}/there"
        assert read(web.url) == b"data"
        assert all(text.count("secret") == 5 for text in web.headers)
        assert other.headers and not any("secret" in text or "Authorization" in text for text in other.headers)


def test_a_password_in_the_address_is_sent_to_no_other_host(web: Web) -> None:
    with web_server() as other:
        other.files["there"] = b"data"
        web.redirects["/x/file"] = f"{other.url}/there"
        assert read(f"{web.url.replace('http://', 'http://me:secret@')}/x") == b"data"
        assert all("Authorization" in text for text in web.headers)
        assert other.headers and not any("Authorization" in text for text in other.headers)


def test_redirects_are_followed_so_often_and_no_more(web: Web) -> None:
    web.files["x/0"] = b"data"
    web.redirects |= {f"/x/{number}": str(number - 1) for number in range(1, MAX_HOPS + 2)}
    assert read(web.url, f"x/{MAX_HOPS}") == b"data"
    for first in (str(MAX_HOPS + 1), "loop"):
        web.redirects["/x/loop"] = "loop"
        with pytest.raises(SourceError, match=f"redirects more than {MAX_HOPS} times"):
            read(web.url, f"x/{first}")


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    "location, why",
    [
        ("http://store.test/file", "to 'http://store.test', expected https://"),
        ("http://example.org/file", "to 'http://example.org', expected https://"),
        ("ftp://store.test/file", "to 'ftp://store.test', expected https://"),
        ("file:///etc/passwd", "to 'file://', expected https://"),
        ("s3://bucket/file", "expected https://"),
        ("data:text/plain,x", "expected https://"),
        ("//127.0.0.1/file", "an address of this machine"),
        ("https://127.0.0.1/file", "an address of this machine"),
        ("https://127.9.9.9/file", "an address of this machine"),
        ("https://0.0.0.0/file", "an address of this machine"),
        ("https://[::1]/file", "an address of this machine"),
        ("https://[::ffff:127.0.0.1]/file", "an address of this machine"),
        ("https://localhost/file", "an address of this machine"),
        ("https://a.localhost./file", "an address of this machine"),
        ("http://localhost/file", "an address of this machine"),
        ("https://inside.test/file", "an address of this machine"),
        ("https://nought.test/file", "an address of this machine"),
        ("https://169.254.169.254/latest/meta-data", "a link-local address"),
        ("https://[fe80::1]/file", "a link-local address"),
        ("https://[fe80::1%25eth0]/file", "a link-local address|cannot be r"),
        ("https://metadata.test/file", "a link-local address"),
        ("https://2130706433/file", "an address of this machine|cannot be r"),
        ("https://127.1/file", "an address of this machine|cannot be r"),
        ("https://0x7f.1/file", "an address of this machine|cannot be r"),
        ("https://me:you@example.org/file", "to 'https://example.org' with a user name"),
        ("https://[/file", "to an invalid address"),
        ("https://a:b/file", "to an invalid address"),
        ("", "expected https://"),
    ],
)
def test_a_redirect_to_where_the_store_could_not_be_is_refused(secure: Web, location: str, why: str) -> None:
    with web_server() as inside:
        secure.redirects["/file"] = location
        with pytest.raises(SourceError, match=why) as caught:
            read(secure.url.replace("localhost", "store.test"))
        assert "secret" not in str(caught.value) and "passwd" not in str(caught.value)
        assert inside.asked == []
    assert {line.split()[1] for line in secure.asked} == {"/file"}


@pytest.mark.usefixtures("names")
def test_a_second_redirect_is_held_against_the_same_rules(secure: Web) -> None:
    own = secure.url.replace("localhost", "store.test")
    secure.redirects |= {"/file": f"{own}/next", "/next": own.replace("https", "http")}
    with pytest.raises(SourceError, match="expected https://"):
        read(own)
    secure.files["next"] = b"data"
    del secure.redirects["/next"]
    assert read(own) == b"data"


@pytest.mark.parametrize(
    "remote, location, is_followed",
    [
        (Remote("http://127.0.0.1:9000/m"), "http://localhost:1/x", True),
        (Remote("http://127.0.0.1:9000/m"), "http://[::1]/x", True),
        (Remote("http://127.0.0.1:9000/m"), "http://192.0.2.7/x", False),
        (Remote("http://127.0.0.1:9000/m"), "https://192.0.2.7/x", True),
        (Remote("http://127.0.0.1:9000/m"), "https://169.254.169.254/x", False),
        (Remote("https://169.254.1.1/m"), "https://169.254.169.254/x", True),
        (Remote("https://169.254.1.1/m"), "https://127.0.0.1/x", False),
        (Remote("http://example.org/m.tar", DIGEST), "http://example.com/x", True),
        (Remote("http://example.org/m.tar", DIGEST), "http://127.0.0.1/x", False),
        (Remote("https://example.org/m"), "https://10.0.0.1/x", True),
    ],
)
def test_what_is_configured_may_be_led_to(remote: Remote, location: str, is_followed: bool) -> None:
    redirects = Source(remote)._redirects
    assert isinstance(redirects, Redirects)
    if is_followed:
        assert redirects._next(f"{remote.url}/file", location) == location
    else:
        with pytest.raises(SourceError):
            redirects._next(f"{remote.url}/file", location)


def test_a_redirect_without_an_address_is_no_file(web: Web) -> None:
    web.status = 304
    web.files["file"] = b"data"
    with pytest.raises(SourceError):
        read(web.url)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_bucket_redirects_to_no_other_origin(scheme: str, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip({"s3": "s3fs", "gs": "gcsfs"}[scheme], reason="buckets need the extra [remote]")
    secrets = {"ACCESS_KEY_ID": "AKIATEST", "SECRET_ACCESS_KEY": "secret", "SESSION_TOKEN": "secret"}
    for name, value in {**secrets, "ENDPOINT_URL": web.url, "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", web.url)
    with web_server() as other:
        web.all_redirected_to = f"{other.url}/there"
        for attempt in (lambda source: source.list(), lambda source: source.read_small("file", 100)):
            with pytest.raises(SourceError):
                attempt(Source(Remote(f"{scheme}://bucket/models")))
        assert web.asked and not other.asked


@pytest.mark.parametrize("is_own", [True, False])
def test_a_session_that_refuses_redirects_follows_those_on_one_server(web: Web, is_own: bool) -> None:
    web.files["there"] = b"data"

    async def get(url: str) -> bytes:
        async with ClientSession(trace_configs=[refuse_redirects()]) as session, session.get(url) as answer:
            return await answer.read()

    with web_server() as other:
        other.files["there"] = b"data"
        web.redirects["/file"] = f"{(web if is_own else other).url}/there"
        if is_own:
            assert asyncio.run(get(f"{web.url}/file")) == b"data"
        else:
            with pytest.raises(SourceError, match="expected no redirect from a bucket"):
                asyncio.run(get(f"{web.url}/file"))
            assert not other.asked
