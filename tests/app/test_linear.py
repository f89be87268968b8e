"""Tests that parsing takes time linear in the length of a body.

The test compares the CPU time of a text with that of one sixteen times as long. A reader with quadratic cost takes 256
times as long for it; the bound of 64 leaves room for the page faults and cache misses of a busy machine.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import engine
from app.codec.form import parameters
from app.codec.message import Message
from app.codec.parse import parse
from app.errors import ServiceError
from app.http.routes.infer import choose
from app.messages import brief, cut, did_you_mean, printable
from app.settings import Settings
from app.signature import Signature

Reader = Callable[[bytes], object]
PORT = engine.Port(name="in0", operand="0", spec=None)
SIGNATURE = Signature(inputs=(PORT,), outputs=(), contents={"in0": "picture"})
SETTINGS = Settings()


def body(content_type: str) -> Reader:
    def read(text: bytes) -> None:
        message: Message = parse(text, content_type, SETTINGS)
        message.decode(SIGNATURE)

    return read


def npy_header(text: bytes) -> object:
    return parse(b"\x93NUMPY\x02\0" + len(text).to_bytes(4, "little") + text, "application/x-npy", SETTINGS).decode(
        SIGNATURE
    )


JSON, FORM = body("application/json"), body("multipart/form-data; boundary=x")
HEADER = b'content-disposition: form-data; name="f"; filename="a"\r\n\r\n'

# What is read, the beginning, what is repeated, the end, and how often at first.
FAMILIES: list[tuple[str, Reader, bytes, bytes, bytes, int]] = [
    ("escaped quotes out of place", JSON, b"", b'\\"', b"", 40_000),
    ("escaped quotes in a string that does not end", JSON, b'"', b'\\"', b"", 40_000),
    ("escaped quotes", JSON, b'{"inputs": "', b'\\"', b'"}', 40_000),
    ("quotes", JSON, b"", b'"', b"", 80_000),
    ("empty strings", JSON, b"[", b'"",', b'""]', 40_000),
    ("backslashes", JSON, b'{"inputs": "', b"\\", b'"}', 80_000),
    ("backslashes between quotes", JSON, b"", b'"\\\\', b"", 40_000),
    ("brackets", JSON, b"", b"[", b"", 80_000),
    ("brackets both ways", JSON, b'{"inputs": [', b"[],", b"[]]}", 5_000),
    ("brackets in strings", JSON, b"[", b'"[{",', b"0]", 80_000),
    ("digits", JSON, b'{"inputs": ', b"1", b"}", 80_000),
    ("digits of a fraction", JSON, b'{"inputs": 0.', b"0", b"1}", 80_000),
    ("digits of an exponent", JSON, b'{"inputs": 1e', b"9", b"}", 80_000),
    ("large numbers", JSON, b'{"inputs": [', b"1e308,", b"1]}", 20_000),
    ("too large numbers", JSON, b'{"inputs": [', b"1e999999,", b"1]}", 20_000),
    ("whole numbers beyond 64 bits", JSON, b'{"inputs": [', b"99999999999999999999999,", b"1]}", 10_000),
    ("blanks", JSON, b"", b" ", b"{", 200_000),
    ("ends of lines", JSON, b"", b"\r\n", b"nan", 100_000),
    ("unicode escapes", JSON, b'{"inputs": "', b"\\u00e9", b'"}', 20_000),
    ("halves of surrogate pairs", JSON, b'{"inputs": "', b"\\ud800", b'"}', 20_000),
    ("commas", JSON, b"[", b",", b"]", 80_000),
    ("a key its boundary occurs within its parts", JSON, b'{"inputs": {', b'"in0": 1,', b'"in0": 1}}', 20_000),
    ("an unknown key", JSON, b'{"', b"inputs", b'": 1}', 20_000),
    ("minus signs", JSON, b'{"inputs": ', b"-", b"1}", 80_000),
    ("a model's name", JSON, b'{"inputs": 1, "version": "', b"1", b'"}', 80_000),
    ("boundaries", FORM, b"--x\r\n", b"\r\n--x", b"--", 20_000),
    ("almost boundaries", FORM, b"--x\r\n" + HEADER, b"\r\n--", b"\r\n--x--", 40_000),
    ("boundaries of longer words", FORM, b"--x\r\n" + HEADER, b"\r\n--xy", b"\r\n--x--", 5_000),
    ("blanks behind a boundary", FORM, b"--x\r\n" + HEADER, b"\r\n--x" + b" " * 200, b"\r\n--x--", 400),
    ("ends of lines in a form", FORM, b"--x\r\n" + HEADER, b"\r\n", b"\r\n--x--", 80_000),
    ("a form before its first boundary", FORM, b"", b"-", b"\r\n--x--", 80_000),
    ("a form without an end", FORM, b"--x\r\n" + HEADER, b"\r", b"", 80_000),
    ("the head of a part", FORM, b"--x\r\n", b"a: b\r\n", b"\r\n\r\n--x--", 20_000),
    ("parameters of a part", FORM, b"--x\r\ncontent-disposition: form-data", b'; a="', b"\r\n\r\n--x--", 20_000),
    ("dimensions", npy_header, b"{'descr': '<f4', 'fortran_order': False, 'shape': (", b"1,", b"), }", 400),
    ("words of an .npy header", npy_header, b"{'descr': '<f4', 'fortran_order': False, ", b"'shape':(1", b"}", 90),
    ("blanks of an .npy header", npy_header, b"'descr'", b" ", b"'shape'", 900),
    ("ranges of Accept", lambda text: choose(text.decode(), ("a/b", "c/d")), b"", b"e/f,", b"", 20_000),
    ("parameters of Accept", lambda text: choose(text.decode(), ("a/b", "c/d")), b"a/b", b";q=1", b"", 20_000),
    ("parameters of a type", lambda text: parameters(text.decode()), b"a/b", b"; x=y", b"", 20_000),
    ("quotes of a type", lambda text: parameters(text.decode()), b"a/b", b'; x="', b"", 20_000),
    ("escapes of a type", lambda text: parameters(text.decode()), b'a/b; x="', b"\\", b"", 20_000),
    ("what looks like a setting", lambda text: did_you_mean(text.decode(), ["inputs"]), b"", b"inputs", b"", 20_000),
    ("what is echoed", lambda text: (cut(text.decode()), brief(text), brief([text])), b"", b"\\'", b"", 40_000),
    ("what is logged", lambda text: printable(text.decode()), b"", b"\n\x1b", b"", 4_000),
]  # fmt: skip


def seconds(read: Reader, text: bytes, runs: int = 3) -> float:
    best = np.inf
    gc.collect()
    gc.disable()  # its runs depend on what all other tests have left behind
    for _ in range(runs):
        start = time.thread_time()
        with suppress(ServiceError):
            read(text)
        best = min(best, time.thread_time() - start)
    gc.enable()
    return float(best)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_time_grows_in_proportion_to_the_length_of_the_text(family: tuple[Any, ...]) -> None:
    _, read, begin, middle, end, times = family
    short, long = (begin + middle * count + end for count in (times // 4, 4 * times))
    # Noise dominates below one millisecond, so shorter times pass without a comparison.
    long_time = seconds(read, long, runs=1)
    assert long_time < 0.001 or long_time < 64 * seconds(read, short) or seconds(read, long) < 64 * seconds(read, short)
