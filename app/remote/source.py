"""Access to remote files through fsspec, which only this module imports (extra ``[remote]``).

Of a library's error only its kind is reported: its text may hold a signed address or a header.
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
from app.remote.local_copy import SourceError
from app.settings import SettingsError

_T = TypeVar("_T")

CHUNK: Final = 2**20
_BLOCK: Final = 8 * 2**20
_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 30.0
# Tags that identify a state of a file, by preference; the last two are combined with the size.
_TAGS: Final = ("ETag", "etag", "generation", "Content-MD5", "Last-Modified", "LastModified")
# Loggers silenced because they log addresses and headers.
_TALKATIVE: Final = ("fsspec", "s3fs", "gcsfs", "aiobotocore", "botocore", "aiohttp", "google.auth")


@dataclass(frozen=True, slots=True)
class Object:
    """Remote file.

    Args:
        size: size in bytes, or None if unknown.
        tag: changes when the file changes; empty if unknown.
    """

    size: int | None
    tag: str


class Source:
    """Reader of a remote address.

    Raises:
        SettingsError: the extra is not installed.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._is_bucket = remote.scheme in BUCKETS
        self._fs = _open(remote.scheme)
        if not self._is_bucket:
            from app.remote.redirects import Redirects  # needs the extra

            self._redirects = Redirects(remote, self._fs, partial(_files, remote.scheme))
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def list(self) -> dict[str, Object]:
        """Return the files of a folder by relative path.

        Raises:
            SourceError: it cannot be listed, or is empty.
        """
        if not self._is_bucket:
            raise SourceError("a web server cannot list files: expected a SHA256SUMS file, or an archive")
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
            raise SourceError(f"{self._remote} has no files: expected the folder of a store")
        return files

    def look(self, path: str = "") -> Object:
        """Return size and tag of a file, or of the address itself.

        Raises:
            SourceError: it cannot be read.
        """
        with self._telling("read", path):
            return self._read(path, lambda fs, url: _object(fs.info(url)))

    def read_small(self, path: str, limit: int) -> bytes | None:
        """Return the contents of a small file, or None if it does not exist.

        Raises:
            SourceError: it is larger than the limit, or cannot be read.
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
        """Yield the bytes of a file.

        Raises:
            SourceError: reading fails.
        """
        with self._telling("read", path):
            # A web server sends a file in one response and therefore in one state; pieces of a bucket's file are tied
            # by ETag.
            more = {"cache_type": "readahead", "block_size": _BLOCK} if self._is_bucket else {"block_size": 0}
            with self._read(path, lambda fs, url: fs.open(url, "rb", **more)) as file:
                while chunk := file.read(CHUNK):
                    yield chunk

    def _read(self, path: str, read: Callable[[Any, str], _T]) -> _T:
        """Call ``read`` with the file system and the address of a file."""
        url = self._address(path)
        return read(self._fs, url) if self._is_bucket else self._redirects.followed(url, read)

    def _address(self, path: str) -> str:
        """Return the address of a file in the folder; for an archive, the path is appended to its name."""
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
            # fsspec reports HTTP errors as FileNotFoundError with the real error as cause.
            cause = exc if self._is_bucket or exc.__cause__ is None else exc.__cause__
            if isinstance(cause, SourceError):
                raise cause from None
            raise _kind(cause)(f"{where} cannot be {what}: {_reason(cause)}") from None


class MissingError(SourceError):
    """File that does not exist."""


class DeniedError(SourceError):
    """File that may not be read; some servers also report missing files this way."""


def _open(scheme: str) -> Any:
    try:
        import fsspec
        from fsspec.config import conf

        fsspec.get_filesystem_class(scheme)  # raises ImportError that names the missing library
        more = _options(scheme)
        for key, value in dict(conf.get(scheme, {})).items():  # extend FSSPEC_* settings instead of replacing them
            more[key] = {**more[key], **value} if isinstance(value, dict) and key in more else value
        if scheme not in BUCKETS:
            from app.remote.redirects import stop_at_redirect

            more["allow_redirects"] = False
            more["client_kwargs"] = {**more["client_kwargs"], "raise_for_status": stop_at_redirect}
        return _files(scheme, more)
    except ImportError as exc:
        # For a partly installed extra, fsspec names the missing module in the error's cause.
        missing = getattr(exc.__cause__, "name", None) or exc.name or "fsspec"
        raise SettingsError(
            f"a store at {scheme}:// needs an extra that is not installed ({missing}): pip install 'pnnx-serve[remote]'"
        ) from None


def _files(scheme: str, options: Mapping[str, Any]) -> Any:
    import fsspec

    return fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **options)


def _options(scheme: str) -> dict[str, Any]:
    """Return options that bound all waiting and reject redirects."""
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
    """Return the error code of an S3 response."""
    with contextlib.suppress(Exception):
        return str(exc.response["Error"]["Code"])  # type: ignore[attr-defined]
    return ""


def _status(exc: BaseException) -> int | None:
    for name in ("status", "code"):  # attributes of aiohttp and gcsfs
        if isinstance(value := getattr(exc, name, None), int):
            return value
    return None


def _reason(exc: BaseException) -> str:
    """Return the kind of failure and advice."""
    if _is_missing(exc):
        return "it does not exist"
    if _is_denied(exc):
        return "access is denied; check the credentials in the environment"
    kind = type(exc).__name__
    if "Credentials" in kind:
        return f"there are no credentials in the environment ({kind})"
    if isinstance(exc, TimeoutError) or "Timeout" in kind:
        return f"it does not answer in time ({kind})"
    if isinstance(exc, OSError) and exc.errno is not None or "Connect" in kind:
        return f"it cannot be reached ({kind}); check the address and the network"
    return " ".join(filter(None, (kind, _code(exc), str(_status(exc) or ""))))
