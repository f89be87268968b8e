"""The keys of the settings, and those of a file that may change while the server runs."""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import tomllib
from pathlib import Path
from typing import Final, TypeAlias

from app.access.keyring import Keyring, KeyringError, Rights, merged, parse_lines, parse_table
from app.errors import ConfigError
from app.settings import Settings, SettingsError
from app.text_files import read_text

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20
_PLACE: Final = re.compile(r"\(at [^()]*\)$")
_Identity: TypeAlias = tuple[int, ...] | None


class Keys:
    """What opens the server; ``ring`` is always the newest that could be read.

    Args:
        settings: with ``keys`` or ``keys_file``, or both.

    Raises:
        SettingsError: they cannot be read, or there is none.
    """

    def __init__(self, settings: Settings) -> None:
        self._file = settings.keys_file
        self._interval_s = settings.reload_interval_s
        self._fixed = _of_environment(settings)
        self._closing = threading.Event()
        self._tried = self._last = _identify(self._file)
        try:
            self.ring = self._read()
        except KeyringError as exc:
            raise SettingsError(f"keys_file '{self._file}': {exc}") from None

    def start(self) -> None:
        """Look at the file from time to time."""
        if self._file is not None:
            _check_permissions(self._file)
        if self._file is not None and self._interval_s > 0:
            threading.Thread(target=self._watch, name="keys", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def look(self) -> None:
        """Look once: a file that is another one and at rest is read. One that is no good changes nothing."""
        now = _identify(self._file)
        is_at_rest, self._last = now == self._last, now
        if not is_at_rest or now == self._tried:
            return
        self._tried = now
        try:
            self.ring = self._read()
        except KeyringError as exc:
            log.error("the keys stay as they were: keys_file: %s", exc)
        else:
            log.info("keys_file was read again")
            _check_permissions(self._file)

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self.look()
            except Exception:  # a fault of ours must not end the watch
                log.exception("looking at keys_file")

    def _read(self) -> Keyring:
        if self._file is None:
            return Keyring(self._fixed)
        rights = _of_file(self._file)
        if not rights:  # a file that was emptied must not open the server
            raise KeyringError("it names no key")
        return Keyring(merged(self._fixed, rights))


def open_keys(settings: Settings) -> Keys | None:
    """The keys that the settings name; None where they name none, so that everybody may come in.

    Raises:
        SettingsError: they cannot be read.
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
        raise SettingsError("keys: it names no key")
    return rights


def _of_file(path: Path) -> Rights:
    try:
        text = read_text(path, _MAX_BYTES)
        return parse_table(tomllib.loads(text)) if path.suffix == ".toml" else parse_lines(text)
    except ConfigError as exc:
        raise KeyringError(str(exc)) from None
    except tomllib.TOMLDecodeError as exc:  # which may quote what it does not understand
        place = _PLACE.search(str(exc))
        raise KeyringError(f"no TOML {place[0] if place else ''}".strip()) from None


def _check_permissions(path: Path | None) -> None:
    try:
        mode = 0 if path is None else os.stat(path).st_mode
    except OSError:  # it is gone again
        return
    if mode & stat.S_IWOTH:
        log.warning("keys_file '%s' may be written to by everybody on this machine", path)
    elif mode & stat.S_IROTH:
        log.warning("keys_file '%s' may be read by everybody on this machine; chmod o-r takes that back", path)


def _identify(path: Path | None) -> _Identity:
    if path is None:
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
