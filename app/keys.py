"""Keys, the groups of requests that each allows, and where they come from: settings, and a file that may change.

Keys are never stored, logged or put into an error. A presented key is hashed twice, the second time with a secret of
this process. The lookup uses this second hash, which an outsider cannot predict, and the first one is compared in
constant time: the duration tells nothing about the keys, and does not depend on their number.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import stat
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final, TypeAlias

from app.errors import ConfigError, ForbiddenError, ServiceError, UnauthorizedError
from app.messages import quoted
from app.settings import Settings, SettingsError
from app.text_files import FileIdentity, identity_of, read_text

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20
_PLACE: Final = re.compile(r"\(at [^()]*\)$")
_LOCAL_ONLY: Final = ForbiddenError(
    "requests that change the server are allowed from the same machine only, or with a key"
)
_CLIENTS: Final = secrets.token_bytes(32)
# Syntax of a bearer token (RFC 6750 section 2.1); shorter ones can be guessed.
_KEY: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,1024}={0,2}")
_DIGEST: Final = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_ENTRY: Final = re.compile(r"([a-z, ]+):\s*(\S+)")
_HOW: Final = "expected at least 16 of the characters A-Z a-z 0-9 . _ ~ + / -, or sha256: and 64 hexadecimal digits"


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
    except OSError:  # it was deleted again
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


def client_of(key: bytes | None) -> bytes:
    """Return what identifies the client with a key in this process, without the key; empty without one."""
    return b"" if key is None else blake2b(key, key=_CLIENTS, digest_size=16).digest()


class Group(StrEnum):
    """Group of requests that a key may allow."""

    INFER = "infer"  # runs of models
    METADATA = "metadata"  # models, graphs, statistics, and the console
    ADMIN = "admin"  # requests that change the server
    METRICS = "metrics"  # Prometheus metrics


Rights: TypeAlias = Mapping[bytes, frozenset[Group]]  # by SHA-256 digest of the key


class KeyringError(ValueError):
    """Error in a list of keys. It says where, but never quotes the text."""


class Keyring:
    """Keys and the groups that each allows."""

    def __init__(self, rights: Rights) -> None:
        self._secret = secrets.token_bytes(32)
        self._rights = {self._blind(digest): (digest, groups) for digest, groups in rights.items()}

    def rights(self, key: bytes) -> frozenset[Group] | None:
        """Return the groups that a key allows, or None for an unknown key."""
        digest = sha256(key).digest()
        known, groups = self._rights.get(self._blind(digest), (b"", None))
        return groups if hmac.compare_digest(known, digest) else None

    def _blind(self, digest: bytes) -> bytes:
        return blake2b(digest, key=self._secret, digest_size=16).digest()


def parse_lines(text: str) -> Rights:
    """Parse ``group: key`` or ``group, group: key``, separated by line ends or semicolons; # begins a comment.

    Raises:
        KeyringError: a line has another form.
    """
    lines = [(number, part) for number, line in enumerate(text.splitlines(), 1) for part in line.split(";")]
    return _joined(entry for number, line in lines for entry in _entries(f"line {number}", line.strip()))


def parse_table(table: Mapping[str, object]) -> Rights:
    """Parse ``{"infer": ["key", ...], ...}``, as a TOML file has it.

    Raises:
        KeyringError: the table has another form.
    """
    return _joined(entry for name, keys in table.items() for entry in _row(name, keys))


def merged(*rights: Rights) -> Rights:
    """Return the union of several sets of rights."""
    return _joined((digest, group) for each in rights for digest, groups in each.items() for group in groups)


def _row(name: str, keys: object) -> Iterator[tuple[bytes, Group]]:
    group = _group(name, "a key of the table")
    for key in keys if isinstance(keys, list) else [keys]:
        if not isinstance(key, str):
            raise KeyringError(f"{group}: found {type(key).__name__}, expected text or a list of texts")
        yield _digest(key, str(group)), group


def _entries(where: str, line: str) -> Iterator[tuple[bytes, Group]]:
    if not line or line.startswith("#"):
        return
    entry = _ENTRY.fullmatch(line)
    if entry is None:
        raise KeyringError(f"{where}: found another form, expected 'group: key' with one of the groups {quoted(Group)}")
    digest = _digest(entry[2], where)
    for name in entry[1].split(","):
        yield digest, _group(name.strip(), where)


def _group(name: str, where: str) -> Group:
    if name not in list(Group):  # not echoed: a key may stand where a group belongs
        raise KeyringError(f"{where}: found an unknown group, expected one of {quoted(Group)}")
    return Group(name)


def _digest(key: str, where: str) -> bytes:
    if stated := _DIGEST.fullmatch(key):
        return bytes.fromhex(stated[1])
    if key.startswith("sha256:") or not _KEY.fullmatch(key):
        raise KeyringError(f"{where}: found an invalid key, {_HOW}")
    return sha256(key.encode()).digest()


def _joined(entries: Iterable[tuple[bytes, Group]]) -> Rights:
    rights: dict[bytes, frozenset[Group]] = {}
    for digest, group in entries:
        rights[digest] = rights.get(digest, frozenset()) | {group}
    return rights
