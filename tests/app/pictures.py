"""Encoded pictures for tests."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from app.content import ContentRun, Converter


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def gradient(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Return an image whose pixels differ, as far as there are enough colours."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    channels = [x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) % 256]
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8)).convert(mode)


def png(width: int = 8, height: int = 8, mode: str = "RGB") -> bytes:
    return encoded(gradient(width, height, mode))


def run_of(converter: Converter, pictures: list[Any]) -> ContentRun:
    """Return the only run for pictures."""
    (run,) = converter.convert(pictures, lambda batch: None).runs
    return run


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(*arrays: np.ndarray, packed: bool = False, **named: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(buffer, *arrays, **named)
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    """Return a PNG that announces many pixels and contains none."""
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
