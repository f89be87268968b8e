"""Location of a store: a folder, or a remote address that app/remote fetches.

An address may contain a password or a signature, which never appears in logs and messages.
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
    """Remote store. ``str`` of it is safe to log; its url is not.

    Args:
        url: the address without the fragment.
        digest: expected SHA-256 of the archive, or of the list of a folder's files.
    """

    url: str = field(repr=False)
    digest: str | None = None

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return safe_text(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", 200)

    @property
    def scheme(self) -> str:
        """Return ``s3``, ``gs``, ``https`` or ``http``."""
        return urlsplit(self.url).scheme

    @property
    def name(self) -> str:
        """Return the last part of the path, or the host, as the name of the store."""
        parts = urlsplit(self.url)
        return PurePosixPath(parts.path).name or parts.netloc.rpartition("@")[2]

    @property
    def is_archive(self) -> bool:
        """Return whether the address is an archive: one file that contains a store."""
        return self.name.endswith(ARCHIVES)

    @property
    def key(self) -> str:
        """Return a name for the store's cache folder; it does not depend on the signature."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:32]


def locate(text: object) -> object:
    """Return a ``Remote`` for an address, and anything else unchanged.

    Raises:
        ValueError: no store can be fetched from the address.
    """
    if not isinstance(text, str) or not _URL.match(text):
        return text
    url, _, fragment = text.partition("#")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("found an invalid address, expected one such as s3://bucket/models") from None
    digest = _DIGEST.fullmatch(fragment)
    if problem := _problem(parts, host) or (fragment and not digest and _FRAGMENT):
        raise ValueError(problem)
    remote = Remote(url.replace(parts.scheme, parts.scheme.lower(), 1), digest[1] if digest else None)
    if parts.query and not remote.is_archive:
        raise ValueError("found a query, expected one only in the address of an archive (.tar, .tar.gz, .tgz)")
    if fault := plain_http_fault(parts.scheme, host, remote.digest):
        raise ValueError(fault)
    return remote


def plain_http_fault(scheme: str, host: str, digest: str | None) -> str | None:
    """Return why a store must not be fetched over plain HTTP, or None."""
    if scheme != "http" or digest is not None or _is_here(host):
        return None
    return "found http://, where models can be modified in transit, expected https://, or #sha256= at the end"


_FRAGMENT: Final = "found an unknown fragment, expected #sha256= and 64 lower-case hexadecimal digits"


def _problem(parts: SplitResult, host: str) -> str | None:
    if parts.scheme not in SCHEMES:
        return f"found the scheme '{safe_text(parts.scheme, 20)}', expected a folder, or one of {', '.join(SCHEMES)}"
    if not host:
        return "found an address without a host or bucket, expected one such as s3://bucket/models"
    if parts.scheme in BUCKETS and (parts.query or "@" in parts.netloc or ":" in parts.netloc):
        return f"found more than a path, expected {parts.scheme}://bucket/path: credentials come from the environment"
    return None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def stores_folder(given: Path | None, cache: Path | None) -> Path:
    """Return the folder for files of remote stores.

    Args:
        given: the folder in the settings, or None.
        cache: the folder for compiled code in the settings, or None.
    """
    if given is not None:
        return given
    if cache is None:
        home = Path(os.environ.get("XDG_CACHE_HOME", ""))
        cache = (home if home.is_absolute() else Path("~/.cache").expanduser()) / "pnnx-serve"
    return cache / "stores"
