"""Comparison of servers: each gets the same tensor, and its answer is decoded."""

from __future__ import annotations

import base64
import json
from email import message_from_bytes

import numpy as np
import pytest

from benchmarks.servers.__main__ import rows
from benchmarks.servers.process import Side
from benchmarks.servers.rivals import OURS, RIVALS

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 12)


def sent(name: str) -> bytes:
    """Return the tensor's bytes in a request, by another reader."""
    message = RIVALS[name].ask(X)
    kind = message.headers.get("Content-Type", "")
    if kind.startswith("multipart"):
        (part,) = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + message.body).get_payload()
        return part.get_payload(decode=True)
    if kind == "application/json":
        return base64.b64decode(json.loads(message.body)["inputs"][0]["data"][0])
    return message.body[int(message.headers.get("inference-header-content-length", 0)) :]


@pytest.mark.parametrize("name", RIVALS)
def test_every_server_is_sent_the_same_tensor(name: str) -> None:
    assert sent(name) == X.tobytes()


def test_a_message_says_how_long_it_is() -> None:
    wire = RIVALS["fastapi"].ask(X).wire()
    head, _, body = wire.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /infer HTTP/1.1\r\n") and f"Content-Length: {len(body)}".encode() in head


def test_ours_is_told_as_a_multiple_of_the_best_of_the_others() -> None:
    sides = {
        name: Side(rates={1: [rate], 8: [rate]}, waits_ms={1: [1.0], 8: [1.0]})
        for name, rate in ((OURS, 30.0), ("a", 10.0), ("b", 20.0))
    }
    ratios = [row[4] for row in rows("m", sides)]
    assert ratios == ["1.50", "", "", "1.50", "", ""]
