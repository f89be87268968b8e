"""Measure low precision beside onnxruntime and OpenVINO: the files that onnxruntime's quantiser writes, and bfloat16.

    python -m benchmarks.quantised_models [--networks resnet18 ...] [--kinds bf16 ...] [--threads 1] [--save NAME]

Every network is quantised statically (QDQ form, unsigned activations, one weight scale a channel), statically with the
quantiser's default options (signed activations, one scale a weight), and dynamically. All engines run the same file in
this process and take turns. Layers that the file leaves in float32 are computed in float32, also by
OpenVINO. In bf16, this engine and OpenVINO run the float32 file in bfloat16, and onnxruntime, which cannot, in float32.
Needs torch, onnx, onnxruntime and openvino.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Array, RivalError, Run, load, run_openvino, take_turns
from benchmarks.export import write_once
from benchmarks.files import Files, default_folder
from benchmarks.machine import describe
from benchmarks.networks import NETWORKS, Network
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

DEFAULT: Final = ("resnet18", "resnet50", "mobilenet_v2", "bert_mini_128", "vit_tiny_224")
KINDS: Final = ("static", "signed", "dynamic", "bf16")
RIVALS: Final = ("onnxruntime", "openvino")
SAMPLES: Final = 12
# Least share of the energy of onnxruntime's answer that another answer must keep: sums of bytes are rounded once in
# one engine and twice in another, and random weights do not forgive it. Numpy keeps 0.978 of ViT-tiny.
AGREEMENT: Final = 0.97


class Samples:
    """Inputs for onnxruntime's calibration: the benchmark's distribution, other seeds."""

    def __init__(self, name: str, network: Network) -> None:
        self._feeds = iter([{name: each} for each in calibration_inputs(network)])

    def get_next(self) -> dict[str, Array] | None:
        """Return the next sample; None after the last."""
        return next(self._feeds, None)


def calibration_inputs(network: Network) -> Iterator[Array]:
    for seed in range(SAMPLES):
        random = np.random.default_rng(seed)
        if network.vocabulary:
            yield random.integers(0, network.vocabulary, network.shape)
        else:
            yield random.standard_normal(network.shape, np.float32)


def quantised(network: Network, kind: str, folder: Path) -> Path:
    """Return the path of a network's quantised file, which is made if it is missing."""
    import onnx
    from onnxruntime import quantization

    files = Files(folder / network.name)
    path = files.folder / f"model.{kind}.onnx"
    prepared = files.folder / "model.prepared.onnx"
    write_once(prepared, lambda target: quantization.quant_pre_process(str(files.onnx(1)), str(target)))
    if kind == "bf16":
        return files.onnx(1)
    if kind == "dynamic":
        write_once(path, lambda target: quantization.quantize_dynamic(str(prepared), str(target)))
        return path
    name = onnx.load(str(prepared), load_external_data=False).graph.input[0].name
    unsigned = {"per_channel": True, "activation_type": quantization.QuantType.QUInt8}
    options = unsigned if kind == "static" else {}
    write_once(
        path,
        lambda target: quantization.quantize_static(str(prepared), str(target), Samples(name, network), **options),
    )
    return path


def measure(network: Network, kind: str, folder: Path, seconds: float, threads: int) -> dict[str, Any]:
    """Return the fastest and the median time of every engine.

    Raises:
        RivalError: our answer is not onnxruntime's.
    """
    path = quantised(network, kind, folder)
    inputs = [np.load(Files(folder / network.name).input(1))]
    session = engine.Session(engine.load(path), threads=threads, precision="bf16" if kind == "bf16" else "float32")
    session.prepare(specs=[engine.TensorSpec(each.shape, each.dtype) for each in inputs])
    runs: dict[str, Run] = {OURS: session.run}
    failures = {}
    for name in RIVALS:
        try:
            run = _rival(name, path, kind, threads)
            run(inputs)
            runs[name] = run
        except Exception as error:  # of whichever library
            failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    expected = [np.array(each) for each in runs["onnxruntime"](inputs)]
    kept = {name: kept_share(run(inputs), expected) for name, run in runs.items()}
    if kept[OURS] < AGREEMENT:
        raise RivalError(f"our answer keeps {kept[OURS]:.2%} of onnxruntime's")
    times = take_turns({name: partial(run, inputs) for name, run in runs.items()}, seconds, lambda *_: None)
    session.close()
    figures = {name: [found.least_s, found.median_s] for name, found in times.items()}
    what = {"network": network.name, "file": kind, "threads": threads}
    return {**what, "kept": kept, "failures": failures, **figures}


def _rival(name: str, path: Path, kind: str, threads: int) -> Run:
    if (name, kind) == ("openvino", "bf16"):
        return run_openvino(import_module(name), path, threads, "bf16")
    return load(name, path, {"onnx": str(path)}, threads)[1]


def kept_share(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the share of the answers' energy that another answer keeps."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(found, expected, strict=True)]
    return float(1 - sum(((a - b) ** 2).sum() for a, b in pairs) / max(sum((b**2).sum() for _, b in pairs), 1e-30))


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table: milliseconds by fastest run, and the best rival's time divided by ours."""
    lines: list[list[str]] = []
    ratios: dict[tuple[str, int], list[float]] = {}
    for each in records:
        rivals = [each[name][0] for name in RIVALS if name in each]
        ratio = min(rivals) / each[OURS][0]
        ratios.setdefault((each["file"], each["threads"]), []).append(ratio)
        times = [f"{each[name][0] * 1e3:.2f}" if name in each else "–" for name in (OURS, *RIVALS)]
        lines.append([each["network"], each["file"], str(each["threads"]), *times, f"{ratio:.2f}"])
    for (kind, threads), found in ratios.items():
        lines.append(["geometric mean", kind, str(threads), *[""] * (1 + len(RIVALS)), f"{geometric_mean(found):.2f}"])
    return table(["network", "quantised", "threads", *(f"{name} ms" for name in (OURS, *RIVALS)), "ratio"], lines)


def main() -> int:
    """Export, quantise, measure and print; return 1 if a network fails or an answer is wrong."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=list(DEFAULT), choices=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="threads of every engine (1)")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of exported networks (user's cache)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each engine and file (1)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    records, failures = [], []
    cells = [*product(options.networks, options.kinds, options.threads)]
    for name, kind, threads in cells:
        try:
            records.append(measure(NETWORKS[name], kind, options.folder, options.seconds, threads))
        except Exception as error:  # of whichever library
            failures.append(f"- {name}, {kind}: {type(error).__name__}: {str(error)[:200]}")
        print(f"{name}, {kind}, {threads}: measured", file=sys.stderr, flush=True)
    failures += [f"- {each['network']}, {each['file']}, {name}: {text}"
                 for each in records for name, text in each["failures"].items()]  # fmt: skip
    body = report(records) + ("\n\nNot timed:\n\n" + "\n".join(failures) if failures else "")
    how = f"batch 1, {options.seconds:g} s for each engine and file"
    section = "bfloat16" if options.kinds == ["bf16"] else "quantised"
    result = Result(kind=section, machine=describe([OURS, *RIVALS]), how=how, body=body, records=records)
    result.publish(options.save)
    return int(len(records) < len(cells))


if __name__ == "__main__":
    sys.exit(main())
