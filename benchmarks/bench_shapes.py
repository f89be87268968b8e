"""Time runs with many recurring shapes, once all have code, and count what was compiled on the way.

    python -m benchmarks.bench_shapes [--shapes 8 12 40] [--rounds 10] [--max-bytes N]

The network is a text recogniser: convolutions over a line 32 pixels high with a dynamic width, then a linear layer on
each column. Widths take turns, the worst order for an LRU cache. Every width's answer is first compared with the
reference's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine
from engine.compiler.codegen import object_code
from engine.compiler.runtime.compile_queue import QUEUE
from engine.graph import RuntimeGraph
from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import Array, TensorSpec

F32 = np.dtype(np.float32)
CHANNELS = (1, 32, 64, 128, 128)
CLASSES = 97
HEIGHT = 32
SETTLE_S = 600.0


def network() -> RuntimeGraph:
    """Return the network, with random weights."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> Attribute:
        scale = float(np.sqrt(2 / np.prod(shape[1:]))) if len(shape) > 1 else 0.0
        data = (random.standard_normal(shape) * scale).astype(F32)
        return Attribute(shape, F32, data)

    operators = [Operator("pnnx.Input", "in", (), ("x0",))]
    for layer, (before, after) in enumerate(zip(CHANNELS, CHANNELS[1:], strict=False)):
        name, pool = f"conv{layer}", (2, 2) if layer < 2 else (2, 1)
        params = {
            "bias": True, "dilation": (1, 1), "groups": 1, "in_channels": before, "kernel_size": (3, 3),
            "out_channels": after, "padding": (1, 1), "padding_mode": "zeros", "stride": (1, 1),
        }  # fmt: skip
        attributes = {"weight": weights(after, before, 3, 3), "bias": weights(after)}
        operators += [
            Operator("nn.Conv2d", name, (f"x{layer}",), (f"c{layer}",), params, attributes),
            Operator("nn.ReLU", f"relu{layer}", (f"c{layer}",), (f"r{layer}",)),
            Operator(
                "nn.MaxPool2d", f"pool{layer}", (f"r{layer}",), (f"x{layer + 1}",),
                {"ceil_mode": False, "dilation": (1, 1), "kernel_size": pool, "padding": (0, 0),
                 "return_indices": False, "stride": pool},
            ),
        ]  # fmt: skip
    last = len(CHANNELS) - 1
    features = CHANNELS[-1] * HEIGHT // 16
    head = {"weight": weights(CLASSES, features), "bias": weights(CLASSES)}
    operators += [
        Operator("torch.flatten", "flat", (f"x{last}",), ("flat",), {"start_dim": 1, "end_dim": 2}),
        Operator("torch.permute", "turn", ("flat",), ("turn",), {"dims": (0, 2, 1)}),
        Operator(
            "nn.Linear", "head", ("turn",), ("head",),
            {"bias": True, "in_features": features, "out_features": CLASSES}, head,
        ),
        Operator("pnnx.Output", "out", ("head",), ()),
    ]  # fmt: skip
    source = Graph(operators=tuple(operators), annotations={"x0": TensorSpec((1, 1, HEIGHT, None), F32)})
    graph = RuntimeGraph.from_source(source)
    graph.build()
    return graph


def run(session: engine.Session, lines: Sequence[Array]) -> list[float]:
    """Return the milliseconds of one run of every line."""
    times = []
    for line in lines:
        start = time.perf_counter()
        session.run([line])
        times.append((time.perf_counter() - start) * 1e3)
    return times


def settle(session: engine.Session, lines: Sequence[Array], counted: list[int]) -> bool:
    """Run all lines until nothing more is compiled; return whether that was reached in time."""
    end = time.monotonic() + SETTLE_S
    run(session, lines)
    while time.monotonic() < end:
        before = counted[0]
        run(session, lines)
        while QUEUE.is_busy:
            time.sleep(0.1)
        if counted[0] == before:
            return True
    return False


def main() -> int:
    """Print a row for every number of shapes."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", type=int, default=[8, 12, 40])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--max-bytes", type=int, default=None, help="instances_max_bytes")
    options = parser.parse_args()
    counted = [0]
    usual = object_code.Code.__init__

    def count(self: object_code.Code, *rest: object) -> None:
        counted[0] += 1
        usual(self, *rest)  # type: ignore[arg-type]

    object_code.Code.__init__ = count  # type: ignore[assignment, method-assign]
    print("| widths | programs made | made afterwards | median ms | worst ms |\n|---|---|---|---|---|")
    for number in options.shapes:
        graph, counted[0] = network(), 0
        lines = [np.random.default_rng(k).random((1, 1, HEIGHT, 96 + 16 * k), F32) for k in range(number)]
        with_code = {"threads": options.threads, "cache": None, "instances_max_bytes": options.max_bytes}
        session = engine.Session(graph, **with_code)
        reference = engine.Session(graph, backend="reference")
        settled = settle(session, lines, counted)
        for line in lines:
            np.testing.assert_allclose(session.run([line])[0], reference.run([line])[0], rtol=1e-3, atol=1e-4)
        made = counted[0]
        times = [each for _ in range(options.rounds) for each in run(session, lines)]
        after = counted[0] - made if settled else "never settled"
        print(f"| {number} | {made} | {after} | {statistics.median(times):.1f} | {max(times):.1f} |", flush=True)
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
