"""What a file is that somebody took for half of a PNNX pair, told from its first bytes."""

from __future__ import annotations

from typing import Final

ONNX: Final = "an ONNX model"
_MAGIC: Final = b"7767517"
_ARCHIVES: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_POINTER: Final = b"version https://git-lfs"
_NUMPY: Final = b"\x93NUMPY"


def kind_of_file(head: bytes) -> str | None:
    """What the first bytes of a file look like, in words; None where they are like nothing known.

    Args:
        head: at least 64 bytes, or all there are.
    """
    if not head:
        return "an empty file"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "a zip archive, as weights and TorchScript models are"
    if head.startswith(_ARCHIVES):
        return "a compressed file"
    if head.startswith(_MAGIC):
        return "the text of a pair"
    if head.startswith(_NUMPY):
        return "a numpy array"
    if head.startswith(_POINTER):
        return "a pointer of Git LFS, in place of the file itself ('git lfs pull' fetches it)"
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return ONNX if _is_onnx(head) else None


def _is_onnx(head: bytes) -> bool:
    """A protocol buffer that begins with the version of its format, then, mostly, with the name of a producer."""
    return len(head) > 3 and head[0] == 0x08 and head[1] < 0x20 and head[2] in (0x12, 0x1A, 0x22, 0x28, 0x3A, 0x42)
