"""Measure int8 networks of three quantisers in turns: ours, onnxruntime's static quantiser and OpenVINO's NNCF.

    python -m benchmarks.int8_models [--networks resnet18 ...] [--folder DIR] [--threads 1] [--auto] [--prepare]
        [--save NAME]

Every engine quantises the float32 network with its own tool on the same samples, and runs what that tool wrote. Rivals
have no budget of errors, so ours has none either (``--keep 0``), and the table says what each engine keeps. OpenVINO
runs with its default precision (bfloat16 for what stays float, where the processor has it) and with float32; the faster
counts. ``--auto`` also measures networks of ours whose layers are float32, bfloat16 or int8. ``--prepare`` only writes
the quantised files. Needs torch, onnx, onnxruntime, openvino and nncf.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Array, Run, load, run_openvino, take_turns
from benchmarks.export import write_once
from benchmarks.files import Files, default_folder
from benchmarks.machine import describe
from benchmarks.networks import NETWORKS, Network
from benchmarks.quantised_models import calibration_inputs, kept_share, quantised
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

DEFAULT: Final = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x1_0",
    "squeezenet1_1", "yolov5n", "unet_256", "vgg11", "densenet121", "convnext_tiny_224", "vit_tiny_224",
    "swin_tiny_224", "bert_mini_128", "minilm_l6_128", "whisper_tiny_encoder", "lstm_tagger_100", "gru_tagger_100",
    "tcn_500", "dbnet_640", "crnn_100", "ultraface_320", "resnext50_32x4d", "espcn", "branches_224",
)  # fmt: skip
FLOAT32: Final = "float32"
AUTO: Final = "ours auto"
_OURS: Final = (OURS, AUTO)
RIVALS: Final = ("onnxruntime", "openvino", "openvino f32")


def quantised_files(
    network: Network, folder: Path, keep: float, threads: int, precisions: Mapping[str, str]
) -> dict[str, Path]:
    """Return the file of each quantiser, which is made if it is missing.

    Args:
        network: a network whose float32 files are in the folder.
        folder: of all networks.
        keep: the budget of our quantiser.
        threads: for which our quantiser measures; the other files do not depend on it.
        precisions: those of our files, by the name of the engine in the table.
    """
    files = Files(folder / network.name)
    pairs = {name: files.folder / f"model.{each}.t{threads}.pnnx.param" for name, each in precisions.items()}
    nncf = files.folder / "model.nncf.xml"
    for name, pair in pairs.items():
        options = {"precision": precisions[name], "keep": keep, "threads": threads}
        write_once(pair, partial(_quantise, network, files, pair, options))
    write_once(nncf, lambda target: _nncf(network, files, nncf, target))
    return {**pairs, "onnxruntime": quantised(network, "static", folder), "openvino": nncf}


def _quantise(network: Network, files: Files, pair: Path, options: Mapping[str, Any], target: Path) -> None:
    graph = engine.load(files.onnx(1))
    samples = [[each] for each in calibration_inputs(network)]
    found = engine.quantise(graph, samples, **options)
    count = f"{found.quantised_layers} of {len(found.layers)} layers"
    print(f"{network.name}: {count}, {found.kept:.5f} kept", file=sys.stderr, flush=True)
    found.graph.save(target, pair.with_name(pair.name.replace(".param", ".bin")))


def _nncf(network: Network, files: Files, path: Path, target: Path) -> None:
    nncf, openvino = import_module("nncf"), import_module("openvino")
    samples = list(calibration_inputs(network))
    kind = nncf.ModelType.TRANSFORMER if network.group == "transformers" else None
    model = openvino.Core().read_model(files.onnx(1))
    model = nncf.quantize(model, nncf.Dataset(samples), subset_size=len(samples), model_type=kind)
    whole = target.with_suffix(".xml")  # the weights' name follows from it
    openvino.save_model(model, whole, compress_to_fp16=False)
    whole.with_suffix(".bin").replace(path.with_suffix(".bin"))
    whole.replace(target)


def measure(network: Network, folder: Path, seconds: float, threads: int, paths: Mapping[str, Path]) -> dict[str, Any]:
    """Return the fastest and the median time of every engine, and what each keeps of the float32 answer.

    Args:
        network: a network whose float32 files are in the folder.
        folder: of all networks.
        seconds: for each engine.
        threads: of every engine.
        paths: the file of each engine.
    """
    inputs = [np.load(Files(folder / network.name).input(1))]
    graphs = {FLOAT32: Files(folder / network.name).onnx(1), **{name: paths[name] for name in _OURS if name in paths}}
    runs: dict[str, Run] = {name: _ours(engine.load(path), inputs, threads) for name, path in graphs.items()}
    failures = {}
    openvino = import_module("openvino")
    makers = {
        "onnxruntime": partial(_onnxruntime, paths["onnxruntime"], threads),
        "openvino": partial(run_openvino, openvino, paths["openvino"], threads, "bf16"),
        "openvino f32": partial(run_openvino, openvino, paths["openvino"], threads, "f32"),
    }
    for name, make in makers.items():
        try:
            runs[name] = make()
            runs[name](inputs)
        except Exception as error:  # of whichever library
            runs.pop(name, None)
            failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    expected = [np.array(each) for each in runs[FLOAT32](inputs)]
    kept = {name: kept_share(run(inputs), expected) for name, run in runs.items()}
    times = take_turns({name: partial(run, inputs) for name, run in runs.items()}, seconds, lambda *_: None)
    figures = {name: [found.least_s, found.median_s] for name, found in times.items()}
    return {"network": network.name, "threads": threads, "kept": kept, "failures": failures, **figures}


def _ours(graph: engine.RuntimeGraph, inputs: Sequence[Array], threads: int) -> Run:
    session = engine.Session(graph, threads=threads)
    session.prepare(specs=[engine.TensorSpec(each.shape, each.dtype) for each in inputs])
    return session.run


def _onnxruntime(path: Path, threads: int) -> Run:
    return load("onnxruntime", path, {"onnx": str(path)}, threads)[1]


def report(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the table: ms by fastest run; the best rival's time and our float32 time divided by ours; shares kept."""
    ours = [name for name in _OURS if name in records[0]]
    engines, keeping = (FLOAT32, *ours, *RIVALS), (*ours, "onnxruntime", "openvino")
    lines = []
    for each in records:
        kept = each["kept"]
        times = [f"{each[name][0] * 1e3:.2f}" if name in each else "–" for name in engines]
        shares = [f"{kept[name]:.4f}" if name in kept else "–" for name in keeping]
        lines.append([each["network"], *times, *(f"{share:.2f}" for share in _ratios(each, ours[-1])), *shares])
    rows = list(zip(*(_ratios(each, ours[-1]) for each in records), strict=True))
    means = [f"{geometric_mean(row):.2f}" for row in rows]
    lines.append(["geometric mean", *[""] * len(engines), *means, *[""] * len(keeping)])
    titles = [*(f"{name} ms" for name in engines), "best rival", FLOAT32, *(f"{name} keeps" for name in keeping)]
    return table(["network", *titles], lines)


def _ratios(record: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Return the best rival's time and our float32 time, each divided by that of one of our networks."""
    ours = record[name][0]
    return min(record[name][0] for name in RIVALS if name in record) / ours, record[FLOAT32][0] / ours


def main() -> int:
    """Quantise, measure and print; return 1 if a network fails."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=list(DEFAULT), choices=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of exported networks (user's cache)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each engine and network (1)")
    parser.add_argument("--threads", type=int, default=1, help="of every engine (1)")
    parser.add_argument("--keep", type=float, default=0.0, help="budget of our quantiser (0)")
    parser.add_argument("--auto", action="store_true", help="also ours with layers in float32, bfloat16 or int8")
    parser.add_argument("--prepare", action="store_true", help="only write the quantised files")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    records, failures = [], []
    for name in options.networks:
        network, precisions = NETWORKS[name], {OURS: "int8", **({AUTO: "auto"} if options.auto else {})}
        try:
            paths = quantised_files(network, options.folder, options.keep, options.threads, precisions)
            if not options.prepare:
                records.append(measure(network, options.folder, options.seconds, options.threads, paths))
        except Exception as error:  # of whichever library
            failures.append(f"- {name}: {type(error).__name__}: {str(error)[:200]}")
        print(f"{name}: done", file=sys.stderr, flush=True)
    failures += [f"- {each['network']}, {name}: {text}" for each in records for name, text in each["failures"].items()]
    if failures:
        print("\n".join(failures), file=sys.stderr)
    if records:
        body = report(records) + ("\n\nNot timed:\n\n" + "\n".join(failures) if failures else "")
        how = f"{options.threads} thread(s), batch 1, {options.seconds:g} s for each engine and network"
        machine = describe([OURS, "onnxruntime", "openvino"])
        kind = "int8_auto" if options.auto else "int8"
        result = Result(kind=kind, machine=machine, how=how, body=body, records=records)
        result.publish(options.save)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
