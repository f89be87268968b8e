"""Requests of the Open Inference Protocol by structure: JSON that lies about the bytes behind it, lengths, packing.

As in ``bodies``, every answer must be one that is documented and leave nothing charged; a result must be made of what
was sent.

    python -m tests.fuzz.protocol --seconds 3600 --seed 1
"""

from __future__ import annotations

import argparse
import copy
import gzip
import itertools
import json
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.fuzz.bodies import BUDGET, LIMITS, NUMBERS, report, settle
from tests.fuzz.child import run

FRONT_END: Final = "tests.fuzz.protocol:attempt"
DOCUMENTED: Final = frozenset({200, 400, 404, 413, 415, 429, 503, 504})
_LENGTH: Final = "inference-header-content-length"
_MODELS: Final = {
    "simple": ("INPUT0", "FP32", (2, 16)), "copy_bool": ("in0", "BOOL", (2, 3)), "copy_i64": ("in0", "INT64", (1, 3)),
    "copy_bf16": ("in0", "BF16", (2, 3)), "copy_f16": ("in0", "FP16", (5, 3)), "shades": ("in0", "BYTES", (1,)),
    "inverse": ("in0", "FP32", (1, 3)), "boxes": ("in0", "FP32", (1, 3, 4, 8)),
}  # fmt: skip
_BYTES: Final = {"FP32": 4, "BOOL": 1, "INT64": 8, "BF16": 2, "FP16": 2, "BYTES": 1, "FP64": 8}
_ODD: Final = (
    None, True, False, -1, 0, 1.5, -0.0, 1e308, 2**53, 2**63, 2**64, -(2**63), "", "x", "NaN", "1", [], {}, [[]],
    [None], {"b64": "AAAA"}, {"b64": 1}, {"image": ""}, "é" * 200,
)  # fmt: skip
_OPTIONS: Final = ("binary_data_output", "timeout", "priority", "sequence_id", "non_finite", "triton_x", "headers")


def attempt(case: int) -> str:
    """Send one request; the status."""
    chance = random.Random(case)
    path, body, headers = _request(chance)
    client = _client()
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code in DOCUMENTED, answer.text[:500]
    if answer.status_code != 200:
        assert isinstance(json.loads(answer.content)["error"], str) and len(answer.content) < 10_000
    else:
        _check(answer)
    settle(client)
    return str(answer.status_code)


def _check(answer: Any) -> None:
    """Check that an answer agrees with its own metadata."""
    length = int(answer.headers.get(_LENGTH, len(answer.content)))
    head, left = json.loads(answer.content[:length]), len(answer.content) - length
    for row in head["outputs"]:
        if "data" not in row:
            left -= row["parameters"]["binary_data_size"]
    assert left == 0, f"{left} bytes more than announced"


def _request(chance: random.Random) -> tuple[str, bytes, dict[str, str]]:
    model = chance.choice([*_MODELS, "nope"])
    document, tail = _document(chance, *_MODELS.get(model, ("in0", "FP32", (1, 3))))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        _spoil(chance, document)
    head = json.dumps(document).encode()
    if chance.random() < 0.1:
        at = chance.randrange(len(head))
        head = head[:at] + chance.randbytes(chance.randrange(4)) + head[at + chance.randrange(3) :]
    if chance.random() < 0.15:
        tail = tail[: chance.randrange(len(tail) + 1)] + chance.randbytes(chance.choice((0, 0, 1, 7, 64)))
    headers = {_LENGTH: str(len(head))} if tail or chance.random() < 0.2 else {}
    if chance.random() < 0.15:
        headers[_LENGTH] = str(chance.choice((*NUMBERS, -1, "x", "", "0x10", " 5 ", len(head) + 1)))
    body = head + tail
    if chance.random() < 0.2:
        body, headers["content-encoding"] = _packed(chance, body)
    headers["accept-encoding"] = chance.choice(("", "gzip", "deflate", "gzip, deflate"))
    version = chance.choice(("", "", "", "/versions/1", "/versions/2", "/versions/x", "/versions/" + "9" * 30))
    return f"/v2/models/{model}{version}/infer", body, headers


def _document(chance: random.Random, name: str, datatype: str, shape: tuple[int, ...]) -> tuple[dict[str, Any], bytes]:
    """A request that is right, and the bytes behind it."""
    count = 1
    for size in shape:
        count *= size
    row: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
    tail = b""
    if datatype == "BYTES" or chance.random() < 0.5:
        tail = chance.randbytes(count * _BYTES[datatype])
        if datatype == "BYTES":
            tail = len(tail).to_bytes(4, "little") + tail
        row["parameters"] = {"binary_data_size": len(tail)}
    else:
        row["data"] = [chance.choice((0, 1, 2)) if datatype != "BOOL" else True for _ in range(count)]
    document: dict[str, Any] = {"inputs": [row]}
    if chance.random() < 0.5:
        wishes = {"binary_data": chance.random() < 0.5, "classification": chance.choice((0, 1, 3, 2**31))}
        keys = chance.sample(sorted(wishes), chance.randrange(3))
        wanted = {"name": chance.choice(("out0", "OUTPUT0", "out1")), "parameters": {key: wishes[key] for key in keys}}
        document["outputs"] = [copy.deepcopy(wanted) for _ in range(chance.choice((1, 1, 2, 50)))]
    if chance.random() < 0.3:
        document["parameters"] = {
            chance.choice(_OPTIONS): copy.deepcopy(chance.choice((*_ODD, *NUMBERS, "null", "token")))
        }
    return document, tail


def _spoil(chance: random.Random, document: dict[str, Any]) -> None:
    """Change one thing somewhere."""
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and chance.random() < 0.7:
            place = place[key]
            continue
        change = chance.random()
        if change < 0.2:
            del place[key]
        elif change < 0.4 and isinstance(place, list):
            place.extend(copy.deepcopy(place[key]) for _ in range(chance.choice((1, 2, 100))))
        else:
            place[key] = copy.deepcopy(chance.choice((*_ODD, *NUMBERS)))  # what is put in may be changed next
        return


def _packed(chance: random.Random, body: bytes) -> tuple[bytes, str]:
    if chance.random() < 0.1:  # a little that becomes much
        body = bytes(chance.choice((1 << 20, 1 << 26, 1 << 28)))
    packed = gzip.compress(body, 1) if chance.random() < 0.5 else zlib.compress(body, 1)
    if chance.random() < 0.2:
        packed = packed[: chance.randrange(len(packed))]
    return packed, chance.choice(("gzip", "deflate", "gzip", "deflate", "br", "identity"))


@cache
def _client() -> Any:
    """One app for all cases of a process, with a small budget."""
    from tests.app.client import serving
    from tests.app.v2_models import write_v2_zoo

    store = Path(tempfile.mkdtemp())
    write_v2_zoo(store)
    serve = serving(store, backend="reference", max_bytes_in_flight=BUDGET, request_timeout_s=20)
    _kept.append(serve)
    return serve.__enter__()


_kept: list[Any] = []


def cases(first: int) -> Iterator[int]:
    """Seeds without end."""
    return itertools.count(first)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try requests for as long as told; print the findings and count the outcomes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="where seeds start, in millions (0)")
    parser.add_argument("--first", type=int, help="the first seed itself")
    parser.add_argument("--count", type=int, help="how many cases")
    options = parser.parse_args(arguments)
    first = options.seed * 1_000_000 if options.first is None else options.first
    end = time.monotonic() + options.seconds
    wanted = itertools.islice(cases(first), options.count)
    return report(run(FRONT_END, itertools.takewhile(lambda _: time.monotonic() < end, wanted), LIMITS))


if __name__ == "__main__":
    sys.exit(main())
