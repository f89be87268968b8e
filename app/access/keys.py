"""Keys from the settings, and from a file that may change while the server runs."""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from app.access.keyring import Group, Keyring, KeyringError, Rights, merged, parse_lines, parse_table
from app.errors import ConfigError, ForbiddenError, ServiceError, UnauthorizedError
from app.settings import Settings, SettingsError
from app.text_files import FileIdentity, identity_of, read_text

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20
_PLACE: Final = re.compile(r"\(at [^()]*\)$")
_LOCAL_ONLY: Final = ForbiddenError(
    "requests that change the server are allowed from the same machine only, or with a key"
)


class Keys:
    """Keys of the server; ``ring`` holds the newest keys that could be read.

    Args:
        settings: with ``keys`` or ``keys_file``, or both.

    Raises:
        SettingsError: the keys cannot be read, or there are none.
    """

    def __init__(self, settings: Settings) -> None:
        self._file = settings.keys_file
        self._interval_s = settings.reload_interval_s
        self._fixed = _of_environment(settings)
        self._closing = threading.Event()
        self._tried = self._last = self._identity()
        try:
            self.ring = self._read()
        except KeyringError as exc:
            raise SettingsError(f"keys_file '{self._file}': {exc}") from None

    def start(self) -> None:
        """Start to watch the file."""
        if self._file is not None:
            _check_permissions(self._file)
        if self._file is not None and self._interval_s > 0:
            threading.Thread(target=self._watch, name="keys", daemon=True).start()

    def close(self) -> None:
        """Stop watching the file."""
        self._closing.set()

    def look(self) -> None:
        """Read the file again if it has changed and is at rest; an invalid file is logged and ignored."""
        now = self._identity()
        is_at_rest, self._last = now == self._last, now
        if not is_at_rest or now == self._tried:
            return
        self._tried = now
        try:
            self.ring = self._read()
        except KeyringError as exc:
            log.error("keys_file is invalid, the keys read before stay in use: %s", exc)
        else:
            log.info("keys_file was read again")
            _check_permissions(self._file)

    def _identity(self) -> FileIdentity | None:
        return None if self._file is None else identity_of(self._file)

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self.look()
            except Exception:  # a bug must not end the watch
                log.exception("failed to check keys_file for changes")

    def _read(self) -> Keyring:
        if self._file is None:
            return Keyring(self._fixed)
        rights = _of_file(self._file)
        if not rights:  # a file that was emptied must not open the server
            raise KeyringError("found no key, expected at least one")
        return Keyring(merged(self._fixed, rights))


def open_keys(settings: Settings) -> Keys | None:
    """Return the keys that the settings name; None when they name none and every request is allowed.

    Raises:
        SettingsError: the keys cannot be read.
    """
    return Keys(settings) if settings.has_keys else None


def _of_environment(settings: Settings) -> Rights:
    if settings.keys is None:
        return {}
    try:
        rights = parse_lines(settings.keys.get_secret_value())
    except KeyringError as exc:
        raise SettingsError(f"keys: {exc}") from None
    if not rights:
        raise SettingsError("keys: found no key, expected at least one")
    return rights


def _of_file(path: Path) -> Rights:
    try:
        text = read_text(path, _MAX_BYTES)
        return parse_table(tomllib.loads(text)) if path.suffix == ".toml" else parse_lines(text)
    except ConfigError as exc:
        raise KeyringError(str(exc)) from None
    except tomllib.TOMLDecodeError as exc:  # its own message may quote a key
        place = _PLACE.search(str(exc))
        raise KeyringError(f"not valid TOML {place[0] if place else ''}".strip()) from None


def _check_permissions(path: Path | None) -> None:
    try:
        mode = 0 if path is None else os.stat(path).st_mode
    except OSError:  # it is gone again
        return
    if mode & stat.S_IWOTH:
        log.warning("keys_file '%s' is writable by every user of this machine; run chmod o-w", path)
    elif mode & stat.S_IROTH:
        log.warning("keys_file '%s' is readable by every user of this machine; run chmod o-r", path)


def refusal(keys: Keys | None, group: Group, key: bytes | None, *, is_local: bool) -> ServiceError | None:
    """Return the error for a request that is refused, or None.

    Args:
        keys: None when the server has no keys.
        group: group of the request.
        key: the key that the request brings.
        is_local: whether the request comes from a program on this machine.
    """
    if keys is None:
        return None if group is not Group.ADMIN or is_local else _LOCAL_ONLY
    if key is None:
        return UnauthorizedError("no key found, expected 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")
    rights = keys.ring.rights(key)
    if rights is None:
        return UnauthorizedError("unknown key")
    return None if group in rights else ForbiddenError(f"this key does not allow {group} requests")


def read_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the key of a request, from Authorization (RFC 6750 section 2.1) or X-API-Key."""
    found = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:].strip())
        if name == b"x-api-key":
            found = value
    return found
