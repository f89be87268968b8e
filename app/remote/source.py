"""What is read from elsewhere, with fsspec: the only module that knows of it (extra ``[remote]``).

Of what a library says when something fails, only what kind of failure it was is told: its text may hold the address
with a signature, or a header.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from app.location import BUCKETS, Remote
from app.remote.names import SourceError
from app.settings import SettingsError

_T = TypeVar("_T")

CHUNK: Final = 2**20
_BLOCK: Final = 8 * 2**20
_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 30.0
# What tells one state of a file from another, in this order; of the last two both the time and the size.
_TAGS: Final = ("ETag", "etag", "generation", "Content-MD5", "Last-Modified", "LastModified")
# What these say has addresses and headers in it, and of a failure more than is told here.
_TALKATIVE: Final = ("fsspec", "s3fs", "gcsfs", "aiobotocore", "botocore", "aiohttp", "google.auth")


@dataclass(frozen=True, slots=True)
class Object:
    """A file that is elsewhere.

    Args:
        size: in bytes; None where nobody says.
        tag: another one when the file is another; empty where nobody says.
    """

    size: int | None
    tag: str


class Source:
    """Reads what lies at an address.

    Raises:
        SettingsError: the extra is not installed.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._is_bucket = remote.scheme in BUCKETS
        self._fs = _open(remote.scheme)
        if not self._is_bucket:
            from app.remote.redirects import Redirects  # it needs the extra, which is there

            self._redirects = Redirects(remote, self._fs, partial(_files, remote.scheme))
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def list(self) -> dict[str, Object]:
        """The files of a folder by their paths in it.

        Raises:
            SourceError: it cannot be listed, or there are none.
        """
        if not self._is_bucket:
            raise SourceError("a web server lists no files: expected SHA256SUMS among them, or an archive")
        root = self._address("").removeprefix(f"{self._remote.scheme}://").rstrip("/")
        with self._telling("listed"):
            found: Mapping[str, Any] = self._fs.find(root, detail=True)
        files = {
            path.removeprefix(root).removeprefix("/"): _object(info)
            for path, info in found.items()
            if info.get("type") == "file" and not path.endswith("/")
        }
        files.pop("", None)
        if not files:
            raise SourceError(f"{self._remote} holds no file: expected the folder of a store")
        return files

    def look(self, path: str = "") -> Object:
        """What is known of a file; of the address itself without a path.

        Raises:
            SourceError: it cannot be read.
        """
        with self._telling("read", path):
            return self._read(path, lambda fs, url: _object(fs.info(url)))

    def read_small(self, path: str, limit: int) -> bytes | None:
        """A file that is no larger than this many bytes; None where there is none.

        Raises:
            SourceError: it is larger, or cannot be read.
        """
        data = bytearray()
        try:
            for chunk in self.chunks(path):
                data += chunk
                if len(data) > limit:
                    raise SourceError(f"'{path}' of {self._remote}: found more than {limit:,} bytes")
        except MissingError:
            return None
        return bytes(data)

    def chunks(self, path: str = "") -> Iterator[bytes]:
        """The bytes of a file, as they come.

        Raises:
            SourceError: they stop coming.
        """
        with self._telling("read", path):
            # A web server sends a file in one response, so it is of one state; pieces of a bucket by their ETag.
            more = {"cache_type": "readahead", "block_size": _BLOCK} if self._is_bucket else {"block_size": 0}
            with self._read(path, lambda fs, url: fs.open(url, "rb", **more)) as file:
                while chunk := file.read(CHUNK):
                    yield chunk

    def _read(self, path: str, read: Callable[[Any, str], _T]) -> _T:
        """Call ``read`` with a file system and the address of a file in it."""
        url = self._address(path)
        return read(self._fs, url) if self._is_bucket else self._redirects.followed(url, read)

    def _address(self, path: str) -> str:
        """Of a file in the folder; what is put behind the address of an archive has no folder of its own."""
        if not path:
            return self._remote.url
        parts = urlsplit(self._remote.url)
        # Names in a bucket are not URL-encoded.
        name = path if self._is_bucket else quote(path, errors="surrogateescape")
        base = parts.path if self._remote.is_archive else f"{parts.path.rstrip('/')}/"
        return urlunsplit((parts.scheme, parts.netloc, f"{base}{name}", parts.query, ""))

    @contextmanager
    def _telling(self, what: str, path: str = "") -> Iterator[None]:
        try:
            yield
        except SourceError:
            raise
        except Exception as exc:
            where = f"'{path}' of {self._remote}" if path else str(self._remote)
            # Whatever fails over HTTP is told as a file that is not there, with the failure behind it.
            cause = exc if self._is_bucket or exc.__cause__ is None else exc.__cause__
            if isinstance(cause, SourceError):
                raise cause from None
            raise _kind(cause)(f"{where} cannot be {what}: {_reason(cause)}") from None


class MissingError(SourceError):
    """There is no such file."""


class DeniedError(SourceError):
    """It may not be read, or some servers say so of what is not there."""


def _open(scheme: str) -> Any:
    try:
        import fsspec
        from fsspec.config import conf

        fsspec.get_filesystem_class(scheme)  # says first which library is missing
        more = _options(scheme)
        for key, value in dict(conf.get(scheme, {})).items():  # what FSSPEC_* variables say is added to, not replaced
            more[key] = {**more[key], **value} if isinstance(value, dict) and key in more else value
        if scheme not in BUCKETS:
            from app.remote.redirects import stop_at_redirect

            more["allow_redirects"] = False
            more["client_kwargs"] = {**more["client_kwargs"], "raise_for_status": stop_at_redirect}
        return _files(scheme, more)
    except ImportError as exc:
        # Where an extra is installed in part, fsspec names what is missing in the error's cause.
        missing = getattr(exc.__cause__, "name", None) or exc.name or "fsspec"
        raise SettingsError(
            f"a store at {scheme}:// needs an extra that is not installed ({missing}): pip install 'pnnx-serve[remote]'"
        ) from None


def _files(scheme: str, options: Mapping[str, Any]) -> Any:
    import fsspec

    return fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **options)


def _options(scheme: str) -> dict[str, Any]:
    """Nothing is waited for without end, and no redirect leads to where nothing is to be fetched from."""
    if scheme == "s3":
        from app.remote.redirects import s3_session

        retries = {"max_attempts": 3, "mode": "standard"}
        limits = {"connect_timeout": _CONNECT_S, "read_timeout": _SILENCE_S, "retries": retries}
        session = s3_session()
        return {"config_kwargs": limits if session is None else {**limits, "http_session_cls": session}}
    if scheme == "gs":
        from app.remote.redirects import refuse_redirects

        return {"requests_timeout": _SILENCE_S, "session_kwargs": {"trace_configs": [refuse_redirects()]}}
    from aiohttp import ClientTimeout

    timeout = ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
    return {"client_kwargs": {"timeout": timeout}}


def _object(info: Mapping[str, Any]) -> Object:
    size = info.get("size")
    key = next((key for key in _TAGS if info.get(key)), None)
    return Object(size if isinstance(size, int) else None, "" if key is None else f"{info[key]} {size}")


def _is_missing(exc: BaseException) -> bool:
    return isinstance(exc, FileNotFoundError) or _status(exc) == 404


def _is_denied(exc: BaseException) -> bool:
    return isinstance(exc, PermissionError) or _status(exc) in (401, 403) or _code(exc) in ("403", "AccessDenied")


def _kind(exc: BaseException) -> type[SourceError]:
    return MissingError if _is_missing(exc) else DeniedError if _is_denied(exc) else SourceError


def _code(exc: BaseException) -> str:
    """The code of an answer of S3, as botocore has it."""
    with contextlib.suppress(Exception):
        return str(exc.response["Error"]["Code"])  # type: ignore[attr-defined]
    return ""


def _status(exc: BaseException) -> int | None:
    for name in ("status", "code"):  # of aiohttp, of gcsfs
        if isinstance(value := getattr(exc, name, None), int):
            return value
    return None


def _reason(exc: BaseException) -> str:
    """What kind of failure it was, and what may help."""
    if _is_missing(exc):
        return "there is nothing of that name"
    if _is_denied(exc):
        return "access is denied; see that the credentials in the environment are those of somebody who may read it"
    kind = type(exc).__name__
    if "Credentials" in kind:
        return f"there are no credentials in the environment ({kind})"
    if isinstance(exc, TimeoutError) or "Timeout" in kind:
        return f"it does not answer in time ({kind})"
    if isinstance(exc, OSError) and exc.errno is not None or "Connect" in kind:
        return f"it cannot be reached ({kind}); see that the address is right, and that the network leads there"
    return " ".join(filter(None, (kind, _code(exc), str(_status(exc) or ""))))
