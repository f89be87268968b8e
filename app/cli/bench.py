"""``pnnx-serve bench``: how fast a model is, kernel by kernel, and beside other engines."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.cli.arguments.numbers import duration, positive
from app.cli.arguments.options import COMPUTING, MODEL_HELP, UsageError, add_setting, read_settings
from app.progress import compiling, progress, rounds

if TYPE_CHECKING:
    import engine
    from app.cli.measuring.contest import Contest
    from app.cli.measuring.rivals import Array
    from app.models.model import Model
    from app.settings import Settings

SUMMARY: Final = "measure a model: latency, throughput, every kernel"
EXAMPLES: Final = """  pnnx-serve bench digits
  pnnx-serve bench resnet18.pnnx.param --threads 1 --batch 8 --seconds 10
  pnnx-serve bench resnet18.pnnx.param --against onnxruntime,ncnn --onnx resnet18.onnx

Inputs are random. The answer is held against the reference before anything is timed, and so is that of every engine
named by --against. The share of peak is of fused multiply-adds on registers, measured on this processor; Winograd
convolutions count the operations they save, so theirs may exceed 100 %.
"""

_RIVALS: Final = ("onnxruntime", "openvino", "ncnn")
_PROFILES: Final = 10
_OURS: Final = "pnnx-serve"


def configure(parser: argparse.ArgumentParser) -> None:
    """What to measure, how long, against whom."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--batch", type=positive, metavar="N", help="batch size. Default: the exported one.")
    parser.add_argument("--seconds", type=duration, default=2.0, metavar="S", help="for each engine. Default: 2.")
    parser.add_argument("--against", default="", metavar="ENGINES", help=f"by comma, of {', '.join(_RIVALS)}")
    for kind, names in (("onnx", "onnxruntime and openvino"), ("ncnn", "ncnn (.ncnn.param)")):
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"the network for {names}. Default: beside the model.")
    for name in ("store", "plugins", *COMPUTING):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """Check, measure, report; 1 when an engine that was asked for cannot take part."""
    settings = read_settings(args)
    names = list(dict.fromkeys(name.strip() for name in args.against.split(",") if name.strip()))
    if unknown := [name for name in names if name not in _RIVALS]:
        raise UsageError(f"--against: found {', '.join(unknown)}, expected some of {', '.join(_RIVALS)}")
    import engine  # imports numpy, and so do these
    from app.cli.arguments import models
    from app.cli.measuring import figures
    from app.cli.measuring.contest import Contest
    from app.cli.measuring.rivals import RivalError

    found = models.find(args.model, settings)
    version = models.newest(found)
    with progress(f"loading {found.name}"):
        model = models.prepare(found, models.load(version), settings)
    with compiling(found.name) as show:
        model.compile(args.batch, progress=show)
    inputs = _inputs(model, args.batch)
    with progress(f"checking {found.name}"):
        contest = Contest(inputs, _reference(model, settings).run(inputs))
        try:
            contest.enter(_OURS, model.session.run)
        except RivalError as exc:
            raise engine.ExecutionError(f"the model's answer is not the reference's: {exc}") from exc
    for name in names:
        _challenge(name, version.param, args, contest, model)
    with rounds(f"measuring {found.name}") as tell:
        times = contest.measure(args.seconds, tell)
    with progress(f"profiling {found.name}"):
        kernels, peak = _kernels(model, inputs), _peak()
    report = figures.Bench(
        name=found.name,
        session=model.session,
        items=_items(inputs),
        times=times,
        errors=contest.errors,
        kernels=kernels,
        peak=peak,
    )
    sys.stdout.write(report.text())
    return int(len(contest) <= len(names))


def _inputs(model: Model, batch: int | None) -> list[Array]:
    """Random inputs of the shapes that the graph, the config and --batch say; always the same ones."""
    import numpy as np

    zeros = model.example_inputs()
    if zeros is None:
        raise UsageError("the model leaves its input's size open, so there is nothing to run it on")
    random = np.random.default_rng(0)
    found = []
    for each in zeros.values():
        shape = each.shape if batch is None or not each.ndim else (batch, *each.shape[1:])
        # small whole numbers are valid as indices, masks and counts alike
        values = random.standard_normal(shape) if each.dtype.kind in "fc" else random.integers(0, 2, shape)
        found.append(values.astype(each.dtype))
    return found


def _reference(model: Model, settings: Settings) -> engine.Session:
    from app.models.sessions import open_session

    return open_session(model.session.graph, settings.model_copy(update={"backend": "reference"}), None)


def _challenge(name: str, param: Path, args: argparse.Namespace, contest: Contest, model: Model) -> None:
    """Let another engine take part, or say why it cannot."""
    from app.cli.measuring import rivals
    from app.render.wording import printable

    try:
        with progress(f"loading {name}"):
            contest.enter(*rivals.load(name, param, {"onnx": args.onnx, "ncnn": args.ncnn}, _threads(model)))
    except rivals.RivalError as exc:
        print(printable(f"{name}: {exc}"), file=sys.stderr)


def _kernels(model: Model, inputs: list[Array]) -> list[dict[str, Any]]:
    """The kernels of a run, or the operators where the reference runs it, each with the least time of several runs."""
    from app.cli.measuring.timing import fastest_kernels

    profiles = []
    for _ in range(_PROFILES):
        outputs = model.session.run(inputs, profile=True)
        rows = outputs.kernels or [{**row, "operators": [row["name"]]} for row in outputs.profile or []]
        profiles.append(rows)
    return fastest_kernels(profiles)


def _threads(model: Model) -> int:
    return model.session.threads or 1


def _peak() -> float | None:
    import engine  # not before the threads are settled

    with suppress(engine.CompileError):
        return engine.measure_peak()
    return None


def _items(inputs: list[Array]) -> int:
    return int(inputs[0].shape[0]) if inputs and inputs[0].ndim else 1
