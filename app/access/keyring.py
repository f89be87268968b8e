"""Which key is good for what. A key itself is never kept, and nothing that is written or raised here holds one.

A key that is presented is hashed twice, the second time with a secret of this process. What is looked up is a hash that
nobody outside can foresee, and what it leads to is compared in constant time: how long it takes tells nothing of the
keys there are, and is the same for any number of them.
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

# What may stand behind "Bearer" (RFC 6750 section 2.1); shorter ones are guessed.
_KEY: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,1024}={0,2}")
_DIGEST: Final = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_ENTRY: Final = re.compile(r"([a-z, ]+):\s*(\S+)")
_HOW: Final = "expected at least 16 of the characters A-Z a-z 0-9 . _ ~ + / -, or sha256: and 64 hexadecimal digits"


class Group(StrEnum):
    """What a request is for."""

    INFER = "infer"  # runs of models
    METADATA = "metadata"  # what is served, how it looks, and how it does; the pages for people
    ADMIN = "admin"  # what changes the server
    METRICS = "metrics"  # figures for a monitor


Rights: TypeAlias = Mapping[bytes, frozenset[Group]]  # of the SHA-256 digest of a key


class KeyringError(ValueError):
    """Text that is no list of keys; says where, and nothing of what stands there."""


class Keyring:
    """Keys, and what each is good for."""

    def __init__(self, rights: Rights) -> None:
        self._secret = secrets.token_bytes(32)
        self._rights = {self._blind(digest): (digest, groups) for digest, groups in rights.items()}

    def rights(self, key: bytes) -> frozenset[Group] | None:
        """What a key is good for; None for one that is not known."""
        digest = sha256(key).digest()
        known, groups = self._rights.get(self._blind(digest), (b"", None))
        return groups if hmac.compare_digest(known, digest) else None

    def _blind(self, digest: bytes) -> bytes:
        return blake2b(digest, key=self._secret, digest_size=16).digest()


def parse_lines(text: str) -> Rights:
    """Lines of ``group: key`` or ``group, group: key``, parted by line ends or semicolons; # begins a comment.

    Raises:
        KeyringError: a line is not like that.
    """
    lines = [(number, part) for number, line in enumerate(text.splitlines(), 1) for part in line.split(";")]
    return _joined(entry for number, line in lines for entry in _entries(f"line {number}", line.strip()))


def parse_table(table: Mapping[str, object]) -> Rights:
    """``{"infer": ["key", ...], ...}``, as a TOML file has it.

    Raises:
        KeyringError: it is something else.
    """
    return _joined(entry for name, keys in table.items() for entry in _row(name, keys))


def merged(*rights: Rights) -> Rights:
    """All of them together."""
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
        raise KeyringError(f"{where}: expected 'group: key', with a group of {quoted(Group)}")
    digest = _digest(entry[2], where)
    for name in entry[1].split(","):
        yield digest, _group(name.strip(), where)


def _group(name: str, where: str) -> Group:
    if name not in list(Group):  # not echoed: a key may stand where a group belongs
        raise KeyringError(f"{where}: no such group, expected one of {quoted(Group)}")
    return Group(name)


def _digest(key: str, where: str) -> bytes:
    if stated := _DIGEST.fullmatch(key):
        return bytes.fromhex(stated[1])
    if key.startswith("sha256:") or not _KEY.fullmatch(key):
        raise KeyringError(f"{where}: no key, {_HOW}")
    return sha256(key.encode()).digest()


def _joined(entries: Iterable[tuple[bytes, Group]]) -> Rights:
    rights: dict[bytes, frozenset[Group]] = {}
    for digest, group in entries:
        rights[digest] = rights.get(digest, frozenset()) | {group}
    return rights
