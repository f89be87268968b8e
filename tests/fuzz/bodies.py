"""Bodies by structure: JSON, arrays, archives, pictures and forms that lie, repeat, nest and inflate.

Every answer must be one that is documented, in JSON where it is an error, never a 500, within time and memory, and
leave nothing charged. A case is a kind and a seed, so that a finding can be tried again:

    python -m tests.fuzz.bodies --seconds 3600 --seed 1
    python -m tests.fuzz.bodies --kind png --first 123 --count 1
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import random
import struct
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.fuzz.child import Limits, Result, run
from tests.patience import PATIENCE_S

FRONT_END: Final = "tests.fuzz.bodies:attempt"
LIMITS: Final = Limits(address_bytes=6 << 30, case_bytes=640 << 20, cpu_s=10.0, wall_s=90.0)
BUDGET: Final = 256 << 20
DOCUMENTED: Final = frozenset({200, 400, 404, 406, 413, 415, 422, 429, 504})
NUMBERS: Final = (0, 1, 2, 3, 7, 8, 255, 256, 1000, 4097, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
MODELS: Final = ("open", "canvas", "colours", "double", "one", "add", "ints", "flags")

Body = tuple[bytes, str]


def attempt(case: dict[str, Any]) -> str:
    """Send one body; the status."""
    chance = random.Random(f"{case['kind']} {case['seed']}")
    body, content_type = KINDS[case["kind"]](chance)
    client = _client()
    answer = client.post(
        f"/models/{chance.choice(MODELS)}/infer{chance.choice(('', '', '?outputs=true', '?outputs=false'))}",
        content=body,
        headers={"content-type": content_type, "accept": chance.choice(("*/*", "application/x-npz", "image/png, */*"))},
    )
    assert answer.status_code in DOCUMENTED, answer.text[:500]
    if answer.status_code != 200:
        error = json.loads(answer.content)["error"]
        assert isinstance(error["code"], str) and len(error["message"]) < 5000
    elif answer.headers["content-type"] == "application/json":
        json.loads(answer.content)
    settle(client)
    return str(answer.status_code)


@cache
def _client() -> Any:
    """One app for all cases of a process, with a small budget."""
    from tests.app.client import serving
    from tests.app.picture_models import write_enlarger, write_segmenter
    from tests.app.sample_models import elementwise, through, write_model

    store = Path(tempfile.mkdtemp())
    write_model(store, "canvas", elementwise("mul(@0,1)", "(1,3,4,6)f32"))
    write_model(store, "open", elementwise("mul(@0,1)", "(?,3,?,?)f32"), config='[preprocess]\nresize = "none"\n')
    write_model(store, "add", elementwise("add(@0,@1)", "(?,2)f32", "(?,2)f32"))
    write_model(store, "one", elementwise("add(@0,1)", "(?,3)f32"))
    write_model(store, "ints", elementwise("add(@0,1)", "(?,3)i64"))
    write_model(store, "flags", through("torch.clone", "(?,2)bool"))
    write_segmenter(store)
    write_enlarger(store)
    serve = serving(store, backend="reference", max_bytes_in_flight=BUDGET, request_timeout_s=20)
    _kept.append(serve)
    return serve.__enter__()


_kept: list[Any] = []


def settle(client: Any) -> None:
    """Nothing is charged once the last thread is done."""
    end = time.monotonic() + PATIENCE_S
    while (client.plane.is_busy or client.plane.memory.used) and time.monotonic() < end:
        time.sleep(0.01)
    assert client.plane.memory.used == 0, f"{client.plane.memory.used} bytes are still charged"


def _size(chance: random.Random, most: int) -> int:
    """Small ones often, large ones now and then."""
    return int(2 ** chance.uniform(0, most.bit_length() - 1))


def _patched(chance: random.Random, data: bytes, reach: int = 400) -> bytes:
    """With some of its numbers changed, and perhaps cut short or longer."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        size = chance.choice((1, 2, 4))
        value = chance.choice(NUMBERS) & (256**size - 1)
        at = chance.randrange(max(1, min(reach, len(changed)) - size))
        changed[at : at + size] = value.to_bytes(size, chance.choice(("little", "big")))
    if chance.random() < 0.2:
        del changed[chance.randrange(len(changed)) :]
    if chance.random() < 0.1:
        changed += chance.randbytes(_size(chance, 1 << 16))
    return bytes(changed)


# JSON

_UNITS: Final = (
    b"[]", b"{}", b"[[]]", b"1", b"1.5", b"-1e-7", b"12345678901234567890", b"1e400", b"null", b"true", b'""',
    b'"NaN"', b'"\\""', b'"\\\\"', b'"' + b"\\u00e9" * 5 + b'"', b'{"a":1}', b"[1,2,3]", b"[true,false]",
    b'{"image":""}',
)  # fmt: skip


def json_body(chance: random.Random) -> Body:
    """Much of one thing, inputs of every form, and text that is hardly JSON."""
    count = _size(chance, 1 << 20)
    unit = chance.choice(_UNITS)
    tree = b"[" + b",".join([unit] * count) + b"]"
    depth = chance.choice((0, 0, 1, 3, 29, 60, 10_000))
    tree = b"[" * depth + tree + b"]" * depth
    tensor = chance.choice((
        lambda: tree,
        lambda: b'{"shape":[%s],"data":%s}' % (_dims(chance).encode(), tree),
        lambda: b'{"shape":[%s],"dtype":"float32","b64":"%s"}' % (
            _dims(chance).encode(), base64.b64encode(bytes(_size(chance, 1 << 22)))),
        lambda: b'{"image":"%s"}' % base64.b64encode(_picture(chance)),
        lambda: b'{"image":"data:image/png;base64,%s"}' % base64.b64encode(_picture(chance))[: _size(chance, 1 << 20)],
        lambda: b'{"in0":%s,"in1":[[1,2]]}' % tree,
        lambda: b'"' + b'\\"' * count + chance.choice((b"", b'"')),
        lambda: b'{' + b",".join(b'"%d":1' % index for index in range(count // 8)) + b"}",
    ))()  # fmt: skip
    body = b'{"inputs":' + tensor + chance.choice((b"", b',"outputs":["out0"]', b',"parameters":{"top_k":1e99}')) + b"}"
    return (_patched(chance, body) if chance.random() < 0.2 else body), "application/json"


def _dims(chance: random.Random) -> str:
    return ",".join(str(chance.choice((*NUMBERS, -1, 2**63, 10**30))) for _ in range(chance.choice((1, 2, 4, 40))))


# Arrays


def npy_body(chance: random.Random) -> Body:
    """Headers that do not say what follows."""
    return _npy(chance), "application/x-npy"


def _npy(chance: random.Random) -> bytes:
    kind = chance.choice(("<f4", "<f4", ">f4", "<f8", "|b1", "<i8", "|O", "<c16", "<U9", "|V2", "<f999999", "<M8"))
    shape = chance.choice(
        ("(1, 3)", "(1, 3, 4, 6)", "(1, 3, 300, 300)", "(0, 3)", f"({_dims(chance)},)", "()", "(-1,)")
    )
    order = chance.choice(("False", "True"))
    text = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * chance.choice((0, 1, 60, 9_000, 70_000))
    version = chance.choice((1, 1, 1, 2, 3, 9))
    length = chance.choice((len(text), len(text), len(text), 0, 65_535))
    header = struct.pack("<H" if version == 1 else "<L", length & (0xFFFF if version == 1 else 0xFFFFFFFF))
    data = bytes(chance.choice((12, 288, 4 * 3 * 300 * 300, 0, _size(chance, 1 << 22))))
    return _patched(chance, b"\x93NUMPY" + bytes([version, 0]) + header + text.encode() + data)


def npz_body(chance: random.Random) -> Body:
    """Archives whose directory lies: sizes, places, checksums, counts, methods."""
    buffer = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for index in range(chance.choice((1, 1, 2, 5, 300, 3000))):
            data = chance.choice((_npy(chance), _npy(chance), _bomb(chance))) if index < 3 else b"x"
            archive.writestr(chance.choice(("in0.npy", f"in{index}.npy", "\u00e9" * 40, f"{'a' * 400}{index}")), data)
    body = bytearray(buffer.getvalue())
    if chance.random() < 0.4:  # a member that inflates to far more than it says
        body = bytearray(_bomb(chance))
    for _ in range(chance.choice((0, 1, 1, 3))):
        start = body.rfind(chance.choice((b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04")))
        if start >= 0:
            at = min(start + chance.randrange(4, 46), len(body) - 4)
            struct.pack_into("<L", body, at, chance.choice(NUMBERS))
    return bytes(body), "application/x-npz"


def _bomb(chance: random.Random) -> bytes:
    data = zlib.compress(bytes(_size(chance, 1 << 28)), 9)[2:-4]
    said = struct.pack("<3L", 0, len(data), chance.choice((140, 65_000, 67_000_000, 2**32 - 1)))
    local = struct.pack("<4s5H", b"PK\x03\x04", 20, 0, 8, 0, 0) + said + struct.pack("<2H", 7, 0) + b"in0.npy"
    entry = struct.pack("<4s6H", b"PK\x01\x02", 20, 20, 0, 8, 0, 0) + said + struct.pack("<5H2L", 7, 0, 0, 0, 0, 0, 0)
    entry += b"in0.npy"
    place = len(local) + len(data)
    return local + data + entry + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry), place, 0)


# Pictures


def _chunk(kind: bytes, data: bytes, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    return struct.pack(">L", size & 0xFFFFFFFF) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def _png(chance: random.Random) -> bytes:
    width, height = (chance.choice((1, 2, 6, 300, 7000, 65_535, 50_000_000)) for _ in range(2))
    depth, colour = chance.choice(((1, 0), (8, 0), (16, 0), (8, 2), (16, 2), (1, 3), (8, 3), (8, 4), (8, 6), (7, 9)))
    header = struct.pack(">2L5B", width, height, depth, colour, 0, 0, chance.choice((0, 0, 1)))
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 1)
    true = min(height * (1 + -(-width * bits // 8)), 1 << 28)
    packed = zlib.compress(bytes(chance.choice((true, true, true // 2, 0, _size(chance, 1 << 26)))), 1)
    cut = chance.choice((1 << 30, 1 << 16, 7, 1)) if len(packed) < 1 << 18 else 1 << 16
    idat = [_chunk(b"IDAT", packed[at : at + cut]) for at in range(0, len(packed), cut)]
    count = chance.choice((0, 0, 1, 3, 2000))
    most = 1 << (24 if count < 4 else 12)
    extra = [
        chance.choice((
            lambda: _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(_size(chance, most)))),
            lambda: _chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(_size(chance, most)))),
            lambda: _chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(_size(chance, most)))),
            lambda: _chunk(b"eXIf", b"II*\0" + struct.pack("<LH2H2L", 8, 65_535, 1, 7, 1 << 20, 0) * 9),
            lambda: _chunk(b"acTL", struct.pack(">2L", chance.choice(NUMBERS), 0)),
            lambda: _chunk(b"fdAT", bytes(40)),
            lambda: _chunk(b"PLTE", bytes(chance.choice((3, 768, 769)))),
            lambda: _chunk(b"tRNS", bytes(chance.choice((1, 2, 6, 256)))),
            lambda: _chunk(b"prVt", b"", chance.choice((None, *NUMBERS))),
        ))()
        for _ in range(count)
    ]  # fmt: skip
    parts = [_chunk(b"IHDR", header), *extra[:3], *idat, *extra[3:], _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


_MODES: Final = {
    "JPEG": ("RGB", "L", "CMYK"), "GIF": ("P", "L"), "BMP": ("RGB", "P", "1"), "WEBP": ("RGB", "RGBA"),
    "TIFF": ("RGB", "L", "P", "CMYK", "RGBA", "F", "I;16", "1"),
}  # fmt: skip


def _saved(chance: random.Random, format: str, **options: Any) -> bytes:
    from PIL import Image

    size = chance.choice(((1, 1), (6, 4), (64, 48), (900, 700)))
    mode = chance.choice(_MODES[format])
    buffer = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").convert("I" if mode == "I;16" else mode).save(buffer, format, **options)
    return buffer.getvalue()


def _jpeg(chance: random.Random) -> bytes:
    plain = _saved(chance, "JPEG", progressive=chance.random() < 0.7)
    kinds = (0xE0, 0xE1, 0xE2, 0xEE, 0xFE, 0xDD, 0xDB, 0xC4)
    filling = struct.pack(">H", 60) + b"Exif\0\0" + bytes(52)
    count = chance.choice((0, 0, 1, 50, 5000))
    extra = b"".join(b"\xff" + bytes([chance.choice(kinds)]) + filling for _ in range(count))
    last = plain.rindex(b"\xff\xda")
    header = plain[last : last + 2 + struct.unpack(">H", plain[last + 2 : last + 4])[0]]
    more = (header + b"\0") * chance.choice((0, 0, 3, 80, 101, 26_000))
    data = bytearray(plain[:2] + extra + plain[2:-2] + more + plain[-2:])
    frame = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    if frame > 0 and chance.random() < 0.5:  # another size, other sampling, another number of components
        at = frame + chance.choice((5, 7, 9, 11, 14))
        struct.pack_into(">H", data, at, chance.choice((1, 7000, 65_535, 0x0111, 0x0444, 0)))
    return bytes(data)


def _tiff(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return _saved(chance, "TIFF", compression=chance.choice((None, "packbits")))
    numbers = (
        254,
        256,
        257,
        258,
        259,
        262,
        273,
        274,
        277,
        278,
        279,
        284,
        317,
        320,
        322,
        323,
        324,
        325,
        339,
        330,
        34665,
    )
    usual = {256: 64, 257: 64, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 64, 279: 4096}
    entries = {tag: (tag, 4, 1, value) for tag, value in usual.items()}
    for _ in range(chance.choice((0, 1, 2, 5))):
        tag = chance.choice(numbers)
        entries[tag] = (
            tag,
            chance.choice((1, 2, 3, 4, 5, 12, 13, 99)),
            chance.choice((1, 1, 2, *NUMBERS)),
            chance.choice(NUMBERS),
        )
    rows = b"".join(struct.pack("<2H2L", *entries[tag]) for tag in sorted(entries))
    start = struct.pack(
        "<LH", chance.choice((8, 8, 8, 8, *NUMBERS)), chance.choice((len(entries), len(entries), 65_535))
    )
    return b"II*\0" + start + rows + struct.pack("<L", chance.choice((0, 8))) + bytes(_size(chance, 1 << 20))


def _frames(chance: random.Random) -> bytes:
    """One of many, of a format that has such."""
    from PIL import Image

    size, buffer = chance.choice(((1, 1), (6, 4), (64, 48))), io.BytesIO()
    images = [Image.effect_noise(size, 60).convert("RGB") for _ in range(chance.choice((2, 10, 100)))]
    images[0].save(buffer, chance.choice(("GIF", "TIFF", "PNG", "WEBP")), save_all=True, append_images=images[1:])
    return buffer.getvalue()


def _webp(chance: random.Random) -> bytes:
    """Chunks of its container twice, in another order, of other lengths, or gone."""
    data = _saved(chance, "WEBP", lossless=chance.random() < 0.5, exif=bytes(chance.choice((0, 8, 3000))))
    chunks, at = [], 12
    while at + 8 <= len(data):
        length = struct.unpack_from("<L", data, at + 4)[0]
        chunks.append(data[at : at + 8 + length + length % 2])
        at += 8 + length + length % 2
    for _ in range(chance.choice((0, 1, 3))):
        other = bytearray(chance.choice(chunks))
        other[:4] = chance.choice((other[:4], b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANMF", b"ANIM", b"EXIF", b"junk"))
        struct.pack_into("<L", other, 4, chance.choice((len(other) - 8, len(other) - 8, *NUMBERS)))
        chunks.insert(
            chance.randrange(len(chunks) + 1),
            bytes(other) * (chance.choice((1, 1, 1, 5000)) if len(other) < 1000 else 1),
        )
    content = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<L", chance.choice((len(content), len(content), *NUMBERS))) + content


def _gif(chance: random.Random) -> bytes:
    """Return a GIF whose blocks repeat, lie about their place, or hold random codes."""
    wide, high = (chance.choice((1, 6, 300, 7000, 65_535)) for _ in range(2))
    head = b"GIF89a" + struct.pack("<2H3B", wide, high, chance.choice((0, 0x80, 0xF7)), 0, 0)
    head += bytes(3 << (head[10] & 7) + 1) if head[10] & 0x80 else b""
    blocks = []
    for _ in range(chance.choice((1, 1, 2, 30, 3000))):
        place = struct.pack(
            "<4HB", *(chance.choice((0, 1, 6, wide, high, 65_535)) for _ in range(4)), chance.choice((0, 64))
        )
        codes = chance.choice((b"", b"\x02\x44\x01", bytes([255]) + chance.randbytes(255), b"\x01\x04" * 200))
        frame = b"," + place + bytes([chance.choice((0, 1, 2, 8, 11, 12, 255))]) + codes + b"\0"
        blocks.append(
            chance.choice((frame, b"!\xf9\x04\x05\0\0\0\0", b"!\xfe\x01a\0", b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"))
        )
    return head + b"".join(blocks) + chance.choice((b";", b""))


def _bmp(chance: random.Random) -> bytes:
    """Every compression and depth, of sizes, offsets, palettes and codes that do not fit each other."""
    wide, high = (chance.choice((1, 6, 300, 7000, 65_535, -6, 2**31 - 1)) for _ in range(2))
    depth, packing = chance.choice((1, 4, 8, 16, 24, 32, 2, 0)), chance.choice((0, 0, 1, 2, 3, 4, 6))
    colours = chance.choice((0, 2, 256, *NUMBERS))
    head = struct.pack(
        "<L2i2H6L",
        chance.choice((40, 40, 12, 108, 124)),
        wide,
        high,
        1,
        depth,
        packing,
        0,
        0,
        0,
        colours & (2**32 - 1),
        0,
    )
    codes = chance.choice((b"\0\x02\xff\xff", b"\0\0", b"\xff\x07", b"\0\xff" + bytes(256), b"\0\x01"))
    rest = bytes(chance.choice((0, 8, 1024))) + codes * chance.choice((1, 50, 20_000))
    return (
        b"BM" + struct.pack("<3L", 14 + len(head) + len(rest), 0, chance.choice((54, 54, 1078, *NUMBERS))) + head + rest
    )


def _picture(chance: random.Random) -> bytes:
    make = chance.choice((
        _png, _png, _jpeg, _jpeg, _tiff, _webp, _gif, _bmp, _frames, lambda each: _saved(each, "GIF"),
        lambda each: _saved(each, "BMP"), lambda each: _saved(each, "WEBP"),
    ))  # fmt: skip
    data = make(chance)
    return _patched(chance, data, chance.choice((60, 400, len(data))))


def picture_body(chance: random.Random) -> Body:
    """Of any format, under its own name or another one."""
    return _picture(chance), chance.choice(("image/png", "image/jpeg", "application/octet-stream", "image/tiff"))


def png_body(chance: random.Random) -> Body:
    """PNG files whose sizes and contents disagree."""
    return _png(chance), "image/png"


# Forms


def form_body(chance: random.Random) -> Body:
    """Parts without number, heads without end, boundaries that are nearly there."""
    boundary = chance.choice((b"x", b"----b", b"\\", b"a" * 70, b"a" * 300))
    parts = []
    count = chance.choice((1, 1, 2, 40, 257, 100_000))
    for index in range(count):
        name = chance.choice((b"file", b"in0", b"in1", b"model", b"outputs", b"parameters", b"n%d" % index))
        head = b'Content-Disposition: form-data; name="%s"' % name
        head += chance.choice((b'; filename="a.png"', b'; filename="a"', b"", b'; a="\\"'))
        if count <= 40:
            head += chance.choice((b"", b"", b"\r\nA: b" * 3, b"\r\nA: " + b"b" * 9000, b"\r\nno colon"))
        content = chance.choice((lambda: b"", lambda: b"{}", lambda: _npy(chance), lambda: _picture(chance)))
        parts.append(head + b"\r\n\r\n" + (content() if index < 3 else b""))
    delimiter = b"\r\n--" + boundary
    body = delimiter[2:] + b"\r\n" + (delimiter + b"\r\n").join(parts) + delimiter
    body += chance.choice((b"--\r\n", b"--", b"", b"\r\n", delimiter * 100, b"\r" * _size(chance, 1 << 20)))
    return _patched(chance, body), "multipart/form-data; boundary=" + boundary.decode()


KINDS: Final[dict[str, Callable[[random.Random], Body]]] = {
    "json": json_body, "npy": npy_body, "npz": npz_body, "picture": picture_body, "png": png_body, "form": form_body,
}  # fmt: skip


def cases(kinds: Sequence[str], first: int) -> Iterator[dict[str, Any]]:
    """Without end: each kind in turn, with ever new seeds."""
    for seed in itertools.count(first):
        for kind in kinds:
            yield {"kind": kind, "seed": seed}


def main(arguments: Sequence[str] | None = None) -> int:
    """Try cases for as long as told; print the findings and count the outcomes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="where seeds start, in millions (0)")
    parser.add_argument("--kind", default=",".join(KINDS), help="by comma (all)")
    parser.add_argument("--first", type=int, help="the first seed itself")
    parser.add_argument("--count", type=int, help="how many cases")
    options = parser.parse_args(arguments)
    first = options.seed * 1_000_000 if options.first is None else options.first
    wanted = itertools.islice(cases(options.kind.split(","), first), options.count)
    return report(run(FRONT_END, _until(wanted, time.monotonic() + options.seconds), LIMITS))


def _until(wanted: Iterator[Any], end: float) -> Iterator[Any]:
    return itertools.takewhile(lambda _: time.monotonic() < end, wanted)


def report(results: Iterator[Result]) -> int:
    """Print findings as they come, and the outcomes at the end; the exit status."""
    outcomes: dict[str, int] = {}
    findings, slowest, largest = 0, 0.0, 0
    for result in results:
        outcomes[result.outcome] = outcomes.get(result.outcome, 0) + 1
        slowest, largest = max(slowest, result.cpu_s), max(largest, result.peak_bytes)
        if result.is_finding:
            findings += 1
            print(f"FINDING {result}", flush=True)
    most = f"at most {slowest:.1f} s and {largest >> 20} MiB"
    print(f"{sum(outcomes.values()):,} cases, {findings} findings, {most}: {outcomes}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
