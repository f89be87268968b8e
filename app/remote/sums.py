"""SHA256SUMS: the list of a store's files with their digests, as ``sha256sum`` writes it."""

from __future__ import annotations

import re
from typing import Final

from app.remote.errors import SourceError
from app.remote.names import check_all
from app.wording import told

SUMS: Final = "SHA256SUMS"
"""What the file is called. Whoever writes it last of all says with it that the others are complete."""
BESIDE: Final = ".sha256"
"""How the name of a file ends that holds the digest of the archive beside it."""
MAX_BYTES: Final = 8 * 2**20

_LINE: Final = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")
_ALONE: Final = re.compile(r"\s*([0-9a-fA-F]{64})(?:\s.*)?", re.DOTALL)


def parse_sums(text: bytes) -> dict[str, str]:
    """Digests by path.

    Raises:
        SourceError: it is no such list.
    """
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.decode("utf-8", "surrogateescape").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None and line.strip():
            raise SourceError(f"{SUMS} line {number}: found '{told(line, 80)}', expected a digest and a file")
        if match is not None and match[2] != SUMS:
            found.append((match[2], match[1].lower()))
    check_all([path for path, _ in found])
    return dict(found)


def parse_digest(text: bytes) -> str:
    """The digest that a file beside an archive holds, alone or with the archive's name behind.

    Raises:
        SourceError: there is none.
    """
    match = _ALONE.fullmatch(text.decode("utf-8", "replace"))
    if match is None:
        raise SourceError(f"the {BESIDE} file beside it holds no SHA-256: expected 64 hexadecimal digits")
    return match[1].lower()
