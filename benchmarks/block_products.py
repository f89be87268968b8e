"""Measure linear layers with weights of 4 and 8 bits in blocks (MatMulNBits) for one row, beside onnxruntime.

    python -m benchmarks.block_products [--threads 1 2] [--seconds 0.2] [--folder DIR] [--save NAME]

Each file has as many layers as exceed the last-level cache, so weights come from memory in every run. The roof is the
rate at which as many threads read memory, in turns with the engines. The bytes of a layer are those of its codes and
scales in the file. Beside the file as it is, onnxruntime runs it with accuracy_level 4, which rounds activations to
8 bits. A decoder step is one token through 8 transformer layers of width 768 and a head of 16,384 words, in float32 and
as onnxruntime's quantiser writes it with 4 bits. Needs torch, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Array, load, take_turns
from benchmarks.export import write_once
from benchmarks.files import default_folder
from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import NOTHING, table
from engine.compiler.codegen.host import detect
from engine.compiler.measuring import probes
from engine.compiler.measuring.bench import Probe, written

RIVAL: Final = "onnxruntime"
ROUNDING: Final = "onnxruntime, activations of 8 bits"
ROOF: Final = "roof"
TIMED: Final = (OURS, RIVAL, ROUNDING, ROOF)
# Input and output features of a layer, its bits, and weights of a block.
LAYERS: Final = (
    (4096, 4096, 4, 32),
    (4096, 4096, 4, 64),
    (4096, 4096, 4, 128),
    (4096, 4096, 8, 128),
    (4096, 11008, 4, 32),
    (4096, 11008, 4, 128),
    (4096, 11008, 8, 128),
    (2048, 8192, 4, 32),
    (2048, 8192, 4, 128),
    (2048, 8192, 8, 128),
)
STEPS: Final = ("float32", "4 bits")
# Bytes of weights in a file, and those read for the roof.
_FILE_BYTES: Final = 96 << 20
_READ_BYTES: Final = 256 << 20
_DOMAIN: Final = "com.microsoft"
_ROUNDING: Final = 4
_WIDTH, _DEPTH, _HEADS, _WORDS = 768, 8, 12, 16_384
# Largest difference from onnxruntime's answer, of its largest element.
_TOLERANCE: Final = 1e-3


def layer_file(folder: Path, inputs: int, outputs: int, bits: int, block: int, level: int = 0) -> tuple[Path, int]:
    """Return the path of a file of equal layers of one input, and the bytes of their weights.

    Args:
        level: accuracy level of onnxruntime.
    """
    blocks = inputs // block
    each = outputs * blocks * (block * bits // 8 + 4)
    count = -(-_FILE_BYTES // each)
    path = folder / "block_products" / f"{inputs}x{outputs}_{bits}_{block}{'_rounding' * (level == _ROUNDING)}.onnx"

    def write(target: Path) -> None:
        from onnx import TensorProto, helper, numpy_helper, save

        random, nodes, stored = np.random.default_rng(1), [], []
        for k in range(count):
            codes = random.integers(0, 256, (outputs, blocks, block * bits // 8), np.uint8)
            scales = (random.random((outputs, blocks), np.float32) + 0.5) / 1000
            stored += [numpy_helper.from_array(codes, f"w{k}"), numpy_helper.from_array(scales, f"s{k}")]
            sizes = {"K": inputs, "N": outputs, "bits": bits, "block_size": block, "accuracy_level": level}
            nodes.append(helper.make_node("MatMulNBits", ["x", f"w{k}", f"s{k}"], [f"y{k}"], domain=_DOMAIN, **sizes))
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs])]
        results = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [1, outputs]) for k in range(count)]
        graph = helper.make_graph(nodes, "layers", ports, results, stored)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_DOMAIN, 1)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(target))

    write_once(path, write)
    return path, count * each


def step_file(folder: Path, kind: str, level: int = 0) -> Path:
    """Return the path of the decoder step in float32 or with 4 bits, for an accuracy level of onnxruntime."""
    plain = folder / "block_products" / "step.onnx"
    write_once(plain, _write_step)
    if kind == STEPS[0]:
        return plain
    path = plain.with_name(f"step_4bits{'_rounding' * (level == _ROUNDING)}.onnx")

    def quantise(target: Path) -> None:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantiser = MatMulNBitsQuantizer(onnx.load(str(plain)), block_size=32, is_symmetric=True, accuracy_level=level)
        quantiser.process()
        quantiser.model.save_model_to_file(str(target))

    write_once(path, quantise)
    return path


def _write_step(target: Path) -> None:
    import torch

    from benchmarks.networks.attention import PreNormBlock

    torch.manual_seed(1)
    layers = [PreNormBlock(_WIDTH, _HEADS, causal=True, approximate="tanh", eps=1e-5) for _ in range(_DEPTH)]
    head = [torch.nn.LayerNorm(_WIDTH), torch.nn.Linear(_WIDTH, _WORDS, bias=False)]
    network = torch.nn.Sequential(*layers, *head).eval()
    x = torch.randn(1, 1, _WIDTH)
    torch.onnx.export(network, (x,), str(target), input_names=["x"], output_names=["y"], opset_version=17, dynamo=False)


def measure(path: Path, rounding: Path | None, threads: int, seconds: float) -> dict[str, Any]:
    """Return the fastest and the median time of the engines on a file.

    Args:
        rounding: the file for onnxruntime with rounded activations.

    Raises:
        ValueError: our answer is not onnxruntime's.
    """
    model = engine.load(path)
    (port,) = model.inputs
    assert port.spec is not None
    x: Array = np.random.default_rng(2).standard_normal(port.spec.sizes).astype(np.float32)
    session = engine.Session(model, threads=threads, cache=None)
    runs = {OURS: session.run, RIVAL: load(RIVAL, path, {"onnx": str(path)}, threads)[1]}
    ours, theirs = (np.asarray(run([x])[0]) for run in runs.values())
    if rounding is not None:
        runs[ROUNDING] = load(RIVAL, rounding, {"onnx": str(rounding)}, threads)[1]
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if not error <= _TOLERANCE:
        raise ValueError(f"{path.name}: our answer differs by {error:.1e}, expected at most {_TOLERANCE:.0e}")
    with ThreadPoolExecutor(threads) as pool:
        turns = {ROOF: reader(pool, threads), **{name: partial(run, [x]) for name, run in runs.items()}}
        times = take_turns(turns, seconds, lambda *_: None)
    session.close()
    return {"error": error, **{name: [found.least_s, found.median_s] for name, found in times.items()}}


def reader(pool: ThreadPoolExecutor, threads: int) -> Callable[[], object]:
    """Return a function that reads ``_READ_BYTES`` of memory, in all threads of a pool at once."""
    host, size = detect(), _READ_BYTES // threads
    probe, parts = Probe("read", probes.walk("read", size, host), host), [written(size) for _ in range(threads)]
    return lambda: list(pool.map(lambda part: probe.turns_a_second(part, 0), parts))


def _records(folder: Path, threads: Sequence[int], seconds: float) -> Iterator[dict[str, Any]]:
    for count in threads:
        for inputs, outputs, bits, block in LAYERS:
            path, size = layer_file(folder, inputs, outputs, bits, block)
            rounding, _ = layer_file(folder, inputs, outputs, bits, block, _ROUNDING)
            what = {"layer": f"{inputs} x {outputs}", "bits": bits, "block": block, "bytes": size}
            yield {**what, "threads": count, **measure(path, rounding, count, seconds)}
        for kind in STEPS:
            path = step_file(folder, kind)
            rounding = step_file(folder, kind, _ROUNDING)
            found = measure(path, None if rounding == path else rounding, count, seconds)
            yield {"step": kind, "threads": count, **found}


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the tables: rates by medians, and onnxruntime's time divided by ours."""
    layers = [
        [
            each["layer"],
            str(each["bits"]),
            str(each["block"]),
            str(each["threads"]),
            f"{_rate(each['bytes'], each[OURS]):.1f}",
            f"{_rate(_READ_BYTES, each[ROOF]):.1f}",
            f"{_rate(each['bytes'], each[OURS]) / _rate(_READ_BYTES, each[ROOF]):.2f}",
            *(_ratio(each, name) for name in (RIVAL, ROUNDING)),
        ]
        for each in records
        if "layer" in each
    ]
    titles = ["layer", "bits", "block", "threads", "GB/s", "roof GB/s", "of the roof", "ratio", "rounding activations"]
    steps = [
        [each["step"], str(each["threads"]),
         *(f"{each[name][1] * 1e3:.2f}" if name in each else NOTHING for name in (OURS, RIVAL, ROUNDING)),
         _ratio(each, RIVAL)]
        for each in records if "step" in each
    ]  # fmt: skip
    found = table(["decoder step", "threads", f"{OURS} ms", f"{RIVAL} ms", "rounding ms", "ratio"], steps)
    return f"{table(titles, layers)}\n\n{found}"


def _rate(size: int, times: Sequence[float]) -> float:
    """Return GB/s by the median time."""
    return size / times[1] / 1e9


def _ratio(record: dict[str, Any], name: str) -> str:
    return f"{record[name][1] / record[OURS][1]:.2f}" if name in record else NOTHING


def main(arguments: Sequence[str] | None = None) -> int:
    """Write files that are missing, measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads of both engines (1 2)")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each engine and file (0.2)")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of files (user's cache)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    parser.add_argument("--write", action="store_true", help="only write the files that are missing")
    options = parser.parse_args(arguments)
    (options.folder / "block_products").mkdir(parents=True, exist_ok=True)
    if options.write:
        for level in (0, _ROUNDING):
            for layer in LAYERS:
                layer_file(options.folder, *layer, level)
            step_file(options.folder, STEPS[1], level)
        return 0
    records = []
    for record in _records(options.folder, options.threads, options.seconds):
        records.append(record)
        print({key: record[key] for key in record if key not in TIMED}, file=sys.stderr, flush=True)
    how = f"one row, {options.seconds:g} s for each engine and file in turns; shares and ratios of medians"
    machine, body = describe([OURS, RIVAL]), report(records)
    result = Result(kind="block_products", machine=machine, how=how, body=body, records=records)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
