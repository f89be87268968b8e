"""Redirects of a web server, each checked by the rules of the store's own address.

A redirect may lead to another host. It must not lead to plain HTTP, to another scheme, or to an address that only this
machine or its network segment reaches (a cloud's metadata service), unless the configured address is of that kind. What
the configuration sends to its own host, credentials among it, is sent to no other.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from inspect import signature
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

from aiohttp import ClientResponse, ClientSession, TCPConnector, ThreadedResolver, TraceConfig
from aiohttp.abc import AbstractResolver

from app.location import Remote, plain_http_fault
from app.messages import safe_text
from app.remote.local_copy import SourceError

_T = TypeVar("_T")

MAX_HOPS: Final = 10
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Options of a configuration that apply to any host.
_OF_ANY_REQUEST: Final = ("allow_redirects", "proxy")
_OF_ANY_CLIENT: Final = ("raise_for_status", "timeout", "trust_env")


class RedirectedError(Exception):
    """Response that redirects to another address.

    Args:
        location: address as the server gave it.
    """

    def __init__(self, location: str) -> None:
        super().__init__()
        self.location = location


async def stop_at_redirect(response: ClientResponse) -> None:
    """Raise ``RedirectedError`` for a redirect; used as aiohttp's ``raise_for_status``."""
    if 300 <= response.status < 400:
        response.release()
        raise RedirectedError(response.headers.get("Location", ""))


def refuse_redirects() -> TraceConfig:
    """Return an aiohttp trace that rejects redirects to other origins; buckets do not redirect."""

    async def refuse(session: object, context: object, found: Any) -> None:
        target = urljoin(str(found.url), found.response.headers.get("Location", ""))
        if _origin(target) != _origin(str(found.url)):
            raise SourceError(f"it redirects to '{safe_text(_shown(target), 100)}', expected no redirect from a bucket")

    config = TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


def _redirect_of(error: BaseException) -> RedirectedError | None:
    """Return the redirect in the cause chain of an fsspec error, or None."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, RedirectedError):
        found = found.__cause__
    return found


def s3_session() -> type | None:
    """Return the class of HTTP sessions for S3 that rejects redirects to other origins.

    None for releases of aiobotocore that take no class.
    """
    from aiobotocore.config import AioConfig
    from aiobotocore.httpsession import AIOHTTPSession

    if "http_session_cls" not in signature(AioConfig.__init__).parameters:
        return None

    class Session(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore may be absent where types are checked
        async def _get_session(self, proxy_url: str | None) -> ClientSession:
            session = await super()._get_session(proxy_url)
            if not session.trace_configs:
                config = refuse_redirects()
                config.freeze()
                session.trace_configs.append(config)
            return session

    return Session


class Redirects:
    """Redirects of one store.

    Args:
        remote: address of the store.
        files: fsspec file system of the configured address, which does not follow redirects (``stop_at_redirect``).
        open_files: opens another file system with given options.
    """

    def __init__(self, remote: Remote, files: Any, open_files: Callable[[dict[str, Any]], Any]) -> None:
        self._remote = remote
        self._origin = _origin(remote.url)
        self._netloc = urlsplit(remote.url).netloc
        self._host = urlsplit(remote.url).hostname or ""
        self._own = files
        self._others = self._files(files, open_files)

    def followed(self, url: str, read: Callable[[Any, str], _T]) -> _T:
        """Return the result of ``read`` for an address or its redirect target.

        Args:
            url: address to read.
            read: takes a file system and an address.

        Raises:
            SourceError: a redirect is not allowed, or there are too many.
        """
        for _ in range(MAX_HOPS + 1):
            try:
                return read(self._own if _origin(url) == self._origin else self._others, url)
            except Exception as exc:
                redirect = _redirect_of(exc)
                if redirect is None:
                    raise
            url = self._next(url, redirect.location)
        raise self._refused(f"more than {MAX_HOPS} times")

    def _next(self, url: str, location: str) -> str:
        """Return the target of a redirect.

        Raises:
            SourceError: the target is not allowed.
        """
        try:
            target = urljoin(_without_user(url), location).partition("#")[0]
            parts = urlsplit(target)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise self._refused("to an invalid address") from None
        where = f"to '{safe_text(_shown(target), 100)}'"
        if not location or parts.scheme not in _DEFAULT_PORTS or not host:
            raise self._refused(f"{where}, expected https://")
        if parts.username is not None:
            raise self._refused(f"{where} with a user name, expected none")
        if plain_http_fault(parts.scheme, host, self._remote.digest) is not None:
            raise self._refused(f"{where}, expected https://, or #sha256= at the end of the store's address")
        self.check_address(host, "127.0.0.1" if _is_local_name(host) else host)
        return urlunsplit(parts._replace(netloc=self._netloc)) if _origin(target) == self._origin else target

    def check_address(self, host: str, text: str) -> None:
        """Raise if a redirect target resolves to an address that is not allowed.

        Raises:
            SourceError: another host than the configured one has a loopback or link-local address.
        """
        address = _address(text)
        if host == self._host or address is None:
            return
        own = ipaddress.ip_address("127.0.0.1") if _is_local_name(self._host) else _address(self._host)
        if _is_of_machine(address) and not (own and _is_of_machine(own)):
            raise self._refused(f"to '{safe_text(host, 100)}', an address of this machine; configure it to allow that")
        if address.is_link_local and not (own and own.is_link_local):
            raise self._refused(f"to '{safe_text(host, 100)}', a link-local address; configure it to allow that")

    def _refused(self, where: str) -> SourceError:
        return SourceError(f"{self._remote} cannot be read: it redirects {where}")

    def _files(self, own: Any, open_files: Callable[[dict[str, Any]], Any]) -> Any:
        """Return the file system for hosts that the store redirects to."""
        client = {key: value for key, value in own.client_kwargs.items() if key in _OF_ANY_CLIENT}
        request = {key: value for key, value in own.kwargs.items() if key in _OF_ANY_REQUEST}
        # With a proxy, names are not resolved here.
        is_direct = not client.get("trust_env") and "proxy" not in request
        files = open_files({"client_kwargs": client, **({"get_client": self._client} if is_direct else {})})
        files.kwargs = request  # fsspec would merge the configured options into the given ones
        return files

    async def _client(self, loop: object = None, **more: Any) -> ClientSession:
        return ClientSession(connector=TCPConnector(resolver=_CheckedResolver(self)), **more)


class _CheckedResolver(AbstractResolver):  # type: ignore[misc]  # aiohttp may be absent where types are checked
    """Resolver that checks the addresses that are connected to."""

    def __init__(self, redirects: Redirects) -> None:
        self._redirects = redirects
        self._resolver = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Any]:
        found: list[Any] = await self._resolver.resolve(host, port, family)
        for each in found:
            self._redirects.check_address(host, each["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def _shown(url: str) -> str:
    """Return the part of an address that may appear in messages: its path may hold a signature."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_local_name(host: str) -> bool:
    return host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost")


def _is_of_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether a connection to an address stays on this machine; 0.0.0.0 is loopback as well."""
    return address.is_loopback or address.is_unspecified
