"""Loops, scans, sequences and optionals, of which results are taken as tensors again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.engine.onnx_files.models import node, onnx, value
from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt

_BOOL = 9


@of("Loop")
def loop(type: str, version: int) -> Iterator[Example]:
    body = onnx.helper.make_graph(
        [node("Add", ["v", "v"], ["v2"]), node("Identity", ["v2"], ["item"]), node("Less", ["v2", "most"], ["small"]),
         node("ReduceMin", ["small_f"], ["least"], keepdims=0), node("Cast", ["small"], ["small_f"], to=1),
         node("Cast", ["least"], ["goes_on"], to=_BOOL)],
        "body",
        [value("turn", [], 7), value("c", [], _BOOL), value("v", [2])],
        [value("goes_on", [], _BOOL), value("v2", [2]), value("item", [2])],
        [onnx.numpy_helper.from_array(np.array(50, np.float32), "most")],
    )  # fmt: skip
    order = [0, 1, 2, 4, 3, 5]
    nodes = [body.node[k] for k in order]
    del body.node[:]
    body.node.extend(nodes)
    yield ex(opt(np.array(4)), opt(np.array(True)), np.array([1, 2], np.float32), outputs=2, body=body, valid=_counts)


def _counts(given: frozenset[int]) -> bool:
    return True


@of("If")
def branch(type: str, version: int) -> Iterator[Example]:
    def graph(number: float) -> Any:
        made = node("Constant", [], ["y"], value=onnx.numpy_helper.from_array(np.array([number], np.float32)))
        return onnx.helper.make_graph([made], "branch", [], [value("y", [1])])

    for taken in (True, False):
        yield ex(np.array(taken), then_branch=graph(1.5), else_branch=graph(2.5))


@of("Scan")
def scan(type: str, version: int) -> Iterator[Example]:
    body = onnx.helper.make_graph(
        [node("Add", ["s", "x"], ["s2"]), node("Identity", ["s2"], ["item"])],
        "body", [value("s", [2]), value("x", [2])], [value("s2", [2]), value("item", [2])],
    )  # fmt: skip
    r = Draws()
    if version < 9:
        yield ex(opt(np.array([3])), r.f(1, 2), r.f(1, 3, 2), outputs=2, body=body, num_scan_inputs=1)
        yield ex(None, r.f(1, 2), r.f(1, 3, 2), outputs=2, body=body, num_scan_inputs=1, directions=[1])
        return
    yield ex(r.f(2), r.f(3, 2), outputs=2, body=body, num_scan_inputs=1)
    yield ex(r.f(2), r.f(3, 2), outputs=2, body=body, num_scan_inputs=1, scan_input_directions=[1],
             scan_output_directions=[1])  # fmt: skip
