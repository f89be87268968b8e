"""Where a store is: a folder, or an address elsewhere (app/remote fetches what is there).

An address may hold a password or a signature. Whatever is told of it, in logs and messages, is what is left without.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import SplitResult, urlsplit

from app.messages import safe_text

BUCKETS: Final = ("s3", "gs")
SCHEMES: Final = (*BUCKETS, "https", "http")
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz")

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DIGEST: Final = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Remote:
    """A store that is fetched. ``str`` of it may be told; its url may not.

    Args:
        url: as it was given, without the fragment.
        digest: SHA-256 that the archive, or the list of a folder's files, is to have.
    """

    url: str = field(repr=False)
    digest: str | None = None

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return safe_text(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", 200)

    @property
    def scheme(self) -> str:
        """``s3``, ``gs``, ``https`` or ``http``."""
        return urlsplit(self.url).scheme

    @property
    def name(self) -> str:
        """The last part of its path, or its host: what the store is called."""
        parts = urlsplit(self.url)
        return PurePosixPath(parts.path).name or parts.netloc.rpartition("@")[2]

    @property
    def is_archive(self) -> bool:
        """Whether the address is that of an archive: one file that holds a store."""
        return self.name.endswith(ARCHIVES)

    @property
    def key(self) -> str:
        """What stands for it in the name of a folder: another signature makes no other store."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:32]


def locate(text: object) -> object:
    """A ``Remote`` of an address; whatever else it is, as it is.

    Raises:
        ValueError: the address is none that a store can be fetched from.
    """
    if not isinstance(text, str) or not _URL.match(text):
        return text
    url, _, fragment = text.partition("#")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("found no address, expected one such as s3://bucket/models") from None
    digest = _DIGEST.fullmatch(fragment)
    if problem := _problem(parts, host) or (fragment and not digest and _FRAGMENT):
        raise ValueError(problem)
    remote = Remote(url.replace(parts.scheme, parts.scheme.lower(), 1), digest[1] if digest else None)
    if parts.query and not remote.is_archive:
        raise ValueError("found a query, which only the address of an archive may have (.tar, .tar.gz, .tgz)")
    if fault := plain_http_fault(parts.scheme, host, remote.digest):
        raise ValueError(fault)
    return remote


def plain_http_fault(scheme: str, host: str, digest: str | None) -> str | None:
    """Return why nothing is fetched from a host without TLS, or None."""
    if scheme != "http" or digest is not None or _is_here(host):
        return None
    return "http:// lets anybody on the way change the models: expected https://, or #sha256= at its end"


_FRAGMENT: Final = "found another fragment than #sha256= and 64 hexadecimal digits in small letters"


def _problem(parts: SplitResult, host: str) -> str | None:
    if parts.scheme not in SCHEMES:
        return f"found the scheme '{safe_text(parts.scheme, 20)}', expected a folder, or one of {', '.join(SCHEMES)}"
    if not host:
        return "found an address without a host or bucket, expected one such as s3://bucket/models"
    if parts.scheme in BUCKETS and (parts.query or "@" in parts.netloc or ":" in parts.netloc):
        return f"expected {parts.scheme}://bucket/path and nothing else: credentials come from the environment"
    return None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def stores_folder(given: Path | None, cache: Path | None) -> Path:
    """Where files of remote stores are kept.

    Args:
        given: by the setting that says so.
        cache: of compiled code, by its setting.
    """
    if given is not None:
        return given
    if cache is None:
        home = Path(os.environ.get("XDG_CACHE_HOME", ""))
        cache = (home if home.is_absolute() else Path("~/.cache").expanduser()) / "pnnx-serve"
    return cache / "stores"
