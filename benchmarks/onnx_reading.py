"""Measure reading a large ONNX file: time beyond copying the file, and copies of its weights in memory.

    python -m benchmarks.onnx_reading [--megabytes 100] [--forms raw external ...]

Each form is read in a process of its own: tensors in the file, beside it, misaligned beside it, in a typed field, and
as operands whose kernels want another order. Processor time of reading the files alone and of ``engine.load``. Memory
beyond that of the process before: after reading, and after a compiled run, when packed weights replaced the file's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.memory import rollup

ROOT: Final = Path(__file__).resolve().parents[1]
_SIDE: Final = 1024
_LAYER_BYTES: Final = 4 * _SIDE * _SIDE


def write(form: str, folder: Path, megabytes: int) -> Path:
    """Write a chain of square layers, of this many megabytes together."""
    import onnx
    from onnx import helper

    random, count = np.random.default_rng(0), max(1, round(megabytes * 1e6 / _LAYER_BYTES))
    nodes, tensors, beside = [], [], bytearray(b"\0" if form == "unaligned" else b"")
    for k in range(count):
        weight = random.standard_normal((_SIDE, _SIDE), np.float32) / 32
        inner = [f"h{k}" if k else "x", f"w{k}"]
        if form == "conv":
            nodes.append(helper.make_node("Conv", inner, [f"h{k + 1}"]))
            weight = weight.reshape(_SIDE, _SIDE, 1, 1)
        elif form == "gemm":
            nodes.append(helper.make_node("Gemm", inner, [f"h{k + 1}"], transB=0))
        else:
            nodes.append(helper.make_node("Gemm", inner, [f"h{k + 1}"], transB=1))
        tensor = helper.make_tensor(f"w{k}", 1, weight.shape, weight.tobytes(), raw=True)
        if form in ("external", "unaligned"):
            onnx.external_data_helper.set_external_data(tensor, "model.onnx.data", len(beside), weight.nbytes)
            tensor.ClearField("raw_data")
            beside += weight.tobytes()
            beside += b"\0" if form == "unaligned" else b""
        elif form == "field":
            tensor.ClearField("raw_data")
            tensor.float_data.extend(weight.reshape(-1))
        tensors.append(tensor)
    shape = [1, _SIDE, 1, 1] if form == "conv" else [1, _SIDE]
    ports = [[helper.make_tensor_value_info(name, 1, shape)] for name in ("x", f"h{count}")]
    graph = helper.make_graph(nodes, "chain", *ports, tensors)
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    if beside:
        path.with_name("model.onnx.data").write_bytes(beside)
    return path


FORMS: Final = ("raw", "external", "unaligned", "field", "gemm", "conv")


def measure(path: Path) -> dict[str, float]:
    """Read a file into this process, run it, and return what that took."""
    import engine
    from engine.onnx.reading.source import library
    from engine.pnnx.files import take_file

    library()
    others = path.with_name("model.onnx.data")
    files = [path, others] if others.exists() else [path]
    engine.load(path.with_name("small.onnx"))  # what is imported by a first one
    before = rollup()
    graph = engine.load(path)
    after = rollup()
    session = engine.Session(graph, threads=1, cache=None)
    session.prepare()
    spec = graph.inputs[0].spec
    assert spec is not None
    for _ in range(2):
        session.run([np.ones(spec.sizes, np.float32)])
    running = rollup()
    taking = min(_cpu_of(lambda: [take_file(each) for each in files]) for _ in range(5))
    loading = min(_cpu_of(lambda: engine.load(path)) for _ in range(5))
    held = {f"read_{key}": (after[key] - before[key]) / 1e6 for key in ("rss", "anonymous")}
    held |= {f"run_{key}": (running[key] - before[key]) / 1e6 for key in ("rss", "anonymous")}
    return {"taking": taking, "loading": loading, "more": loading - taking, **held, "peak": running["peak"] / 1e6}


def _cpu_of(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main() -> int:
    """Measure each form in a process of its own."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100, help="megabytes of weights (100)")
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    print(f"{'':10} {'take s':>8} {'load s':>8} {'more s':>8} |     read RSS    anonymous      run RSS    anonymous")
    for form in options.forms:
        with tempfile.TemporaryDirectory() as folder:
            # Written by another process, whose memory is not this one's.
            write(form, Path(folder), 0).rename(Path(folder) / "small.onnx")
            path = write(form, Path(folder), options.megabytes)
            command = [sys.executable, "-m", "benchmarks.onnx_reading", "--one", str(path)]
            row = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
        seconds = f"{row['taking']:8.3f} {row['loading']:8.3f} {row['more']:8.3f}"
        after = " ".join(f"{row[key]:12.1f}" for key in ("read_rss", "read_anonymous", "run_rss", "run_anonymous"))
        print(f"{form:10} {seconds} | {after}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
