"""Mangled models: whatever happens to the two files, reading gives a graph or a ModelFormatError, in bounded memory.

The test suite runs a few; ``python -m tests.engine.pnnx.fuzz 100000`` runs as many as it is told to
and counts the answers.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from engine import pnnx
from engine.errors import ModelFormatError
from engine.pnnx.archive import write_archive
from engine.pnnx.pair import pack_members
from tests.engine.pnnx.build import members, param, save

# Bytes a read may take: so many for each byte of the files, and so many in any case.
PER_BYTE, FIXED = 64, 2**18

LINES = [
    "pnnx.Input               pnnx_input_0             0 1 0 #0=(?,3,8,8)f32",
    "nn.Conv2d                layer1.0.conv1           1 1 0 1 bias=True groups=1 padding=(1,1) padding_mode=zeros "
    "@bias=(4)f32 @weight=(4,3,1,1)f32 #0=(?,3,8,8)f32 #1=(?,4,8,8)f32",
    "nn.LeakyReLU             F.relu_7                 1 1 1 2 negative_slope=1.000000e-2 #1=(?,4,8,8)f32",
    "pnnx.Attribute           /l/Expand_0              0 1 3 @data=(2,3)bool #3=(2,3)bool",
    "pnnx.Attribute           c                        0 1 x.4 @data=(3)c32 #x.4=(3)c32",
    "pnnx.Attribute           s                        0 1 5 @data=()i64",
    "torch.matmul             m                        2 1 2 2 6 $input=2 $other=2 #2=(?,4,8,8)f32 #6=(?,4,8,8)f32",
    "pnnx.Expression          pnnx_expr_0              1 1 6 7 expr=add(mul(@0,0.5),1.0e+00-2.0e+00j)",
    "torch.einsum             e                        2 1 7 3 8 equation=b c , b k -> b c k value=nan.0 w=(0.5,inf)",
    "prim::TupleConstruct     t                        4 1 8 x.4 5 6 9",
    "pnnx.Output              pnnx_output_0            1 0 9",
]
CONTENTS = {
    "layer1.0.conv1.bias": bytes(range(16)),
    "layer1.0.conv1.weight": bytes(range(48)),
    "/l/Expand_0.data": b"\0\1\0\1\0\1",
    "c.data": bytes(range(12)),
    "s.data": bytes(8),
}
NUMBERS = (b"0", b"-1", b"1", b"17", b"999999999", b"2147483648", b"99999999999999999999", b"1e999", b"?", b"nan")
WORDS = (b"=", b" ", b"\n", b"(", b")", b",", b"@", b"#", b"$", b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\xff" * 4, b"\0" * 8)

Pair = tuple[bytes, bytes]
SEEDS: tuple[Pair, ...] = tuple((param(LINES), members(CONTENTS, zip64=zip64)) for zip64 in (True, False))


def flip(data: bytes, at: int, rng: random.Random) -> bytes:
    """One bit, or one whole byte."""
    value = data[at] ^ rng.choice((1 << rng.randrange(8), rng.randrange(1, 256)))
    return data[:at] + bytes([value]) + data[at + 1 :]


def truncate(data: bytes, at: int, rng: random.Random) -> bytes:
    """The end is missing."""
    return data[:at]


def delete(data: bytes, at: int, rng: random.Random) -> bytes:
    """Some bytes are missing."""
    return data[:at] + data[at + rng.randrange(1, 40) :]


def insert(data: bytes, at: int, rng: random.Random) -> bytes:
    """Something that means something, or noise, or a lot of it."""
    noise = rng.randbytes(rng.randrange(1, 9))
    return data[:at] + rng.choice((*WORDS, *NUMBERS, noise, rng.choice(WORDS) * 2000)) + data[at:]


def splice(data: bytes, at: int, rng: random.Random) -> bytes:
    """A piece from elsewhere, instead of what was here or besides it."""
    start, length = rng.randrange(len(data)), rng.randrange(1, 120)
    return data[:at] + data[start : start + length] + data[at + rng.choice((0, length)) :]


def renumber(data: bytes, at: int, rng: random.Random) -> bytes:
    """Another number: the next run of digits, or four little-endian bytes."""
    start = next((i for i in range(at, len(data)) if 48 <= data[i] < 58), None)
    if start is None or rng.random() < 0.3:
        value = rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, rng.randrange(2**32)))
        return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]
    end = next((i for i in range(start, len(data)) if not 48 <= data[i] < 58), len(data))
    return data[:start] + rng.choice(NUMBERS) + data[end:]


def swap_lines(data: bytes, at: int, rng: random.Random) -> bytes:
    """Two lines in each other's place."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


MUTATIONS: tuple[Callable[[bytes, int, random.Random], bytes], ...] = (
    flip,
    truncate,
    delete,
    insert,
    splice,
    renumber,
    swap_lines,
)


def mangle(pair: Pair, rng: random.Random) -> Pair:
    """One to four mutations, each of either file."""
    files = list(pair)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        which = rng.randrange(2)
        if files[which]:
            files[which] = rng.choice(MUTATIONS)(files[which], rng.randrange(len(files[which])), rng)
    return files[0], files[1]


def check(folder: Path, pair: Pair, *, verify: bool) -> str:
    """Read a pair of files; the name of what came of it.

    Raises:
        MemoryError: when reading took more than the files are worth.
        EngineError: when what was read cannot be written.
    """
    path = save(folder, *pair)
    tracemalloc.start()
    try:
        outcome = _read(path, verify=verify)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    allowed = PER_BYTE * sum(map(len, pair)) + FIXED
    if peak > allowed:
        raise MemoryError(f"{peak} bytes for files of {[len(data) for data in pair]}")
    if isinstance(outcome, str):
        return outcome
    # What could be read can be written, and packing touches every byte of the views.
    pnnx.format_param(outcome)
    write_archive(io.BytesIO(), pack_members(outcome))
    return "read"


def _read(path: Path, *, verify: bool) -> pnnx.Graph | str:
    try:
        return pnnx.read(path, verify=verify)
    except ModelFormatError as error:
        return type(error).__name__


def run(count: int, seed: int) -> Counter[str]:
    """Mangle and read so many pairs; how often each answer was given."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            pair = mangle(SEEDS[index % len(SEEDS)], rng)
            try:
                outcomes[check(Path(folder), pair, verify=index % 3 == 0)] += 1
            except BaseException:
                print(f"case {index} of seed {seed}: {pair!r}", file=sys.stderr)
                raise
    return outcomes


def main(arguments: list[str]) -> None:
    """``python -m tests.engine.pnnx.fuzz COUNT [SEED]``."""
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    started = time.monotonic()
    outcomes = run(count, seed)
    print(f"{count:,} mangled pairs in {time.monotonic() - started:.0f} s: {dict(outcomes)}")


if __name__ == "__main__":
    main(sys.argv[1:])
