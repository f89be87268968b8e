"""Keys and the groups of requests that each allows. Keys are never stored, logged or put into an error.

A presented key is hashed twice, the second time with a secret of this process. The lookup uses this second hash, which
an outsider cannot predict, and the first one is compared in constant time: the duration tells nothing about the keys,
and does not depend on their number.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b, sha256
from typing import Final, TypeAlias

from app.messages import quoted

# Syntax of a bearer token (RFC 6750 section 2.1); shorter ones can be guessed.
_KEY: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,1024}={0,2}")
_DIGEST: Final = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_ENTRY: Final = re.compile(r"([a-z, ]+):\s*(\S+)")
_HOW: Final = "expected at least 16 of the characters A-Z a-z 0-9 . _ ~ + / -, or sha256: and 64 hexadecimal digits"


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
