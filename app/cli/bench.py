"""``pnnx-serve bench``: speed of a model, of its kernels, and of other engines on the same model."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import engine
from app.cli import bench_report
from app.cli.arguments import models
from app.cli.arguments.models import example_specs
from app.cli.arguments.options import UsageError
from app.cli.bench_plot import check_ending, plot
from app.cli.output import display_name, write_json, write_result
from app.cli.verbs import RIVALS
from app.measuring import rivals
from app.measuring.contest import Contest
from app.measuring.rivals import Array
from app.measuring.timing import fastest_kernels
from app.messages import printable
from app.models.model import Model
from app.models.sessions import open_session
from app.progress import compiling, progress, rounds
from app.render.formatting import counted
from app.settings import Settings
from app.trials.inputs import random_inputs

_PROFILES: Final = 10
_OURS: Final = "pnnx-serve"


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Check, measure and report; return 1 if a requested engine cannot take part."""
    names = _rivals(args)
    found = models.find(args.model, settings)
    version = models.newest(found)
    with progress(f"loading {found.name}"):
        model = models.prepare(found, version, models.load(version, settings), settings)
    specs = example_specs(model, args.shape)
    if specs is None:
        raise UsageError("--shape: missing, expected a shape for the model's dynamic input sizes")
    with compiling(found.name) as show:
        model.compile(args.batch, specs=specs, progress=show)
    inputs = random_inputs(specs, args.batch)
    with progress(f"checking {found.name}"):
        contest = _contest(model, inputs, settings)
    for name in names:
        _challenge(name, version.param, args, contest, model)
    with rounds(f"measuring {found.name}") as tell:
        times = contest.measure(args.seconds, tell)
    with progress(f"profiling {found.name}"):
        kernels, peak = _kernels(model, inputs), _peak()
    report = bench_report.Bench(
        name=found.name,
        session=model.session,
        items=_items(inputs),
        times=times,
        errors=contest.errors,
        kernels=kernels,
        peak=peak,
        has_bars=args.plot is not None,
    )
    if args.json:
        write_json(report.plain())
    else:
        sys.stdout.write(report.text())
    if args.plot is not None:
        write_result(plot(args.plot, _heading(found.name, model), times, kernels), args.plot)
    return int(len(contest) <= len(names))


def _rivals(args: argparse.Namespace) -> list[str]:
    """Return the engines named by --against, after checking the arguments."""
    names = list(dict.fromkeys(name.strip() for name in args.against.split(",") if name.strip()))
    if unknown := [name for name in names if name not in RIVALS]:
        raise UsageError(f"--against: found {', '.join(unknown)}, expected some of {', '.join(RIVALS)}")
    if args.plot is not None:
        check_ending(args.plot)
    if args.shape and args.batch is not None:
        raise UsageError("--shape and --batch: found both, expected one of them (a shape includes the batch)")
    return names


def _contest(model: Model, inputs: list[Array], settings: Settings) -> Contest:
    """Return a contest with the model as its first engine, checked against the reference."""
    contest = Contest(inputs, _reference(model, settings).run(inputs))
    try:
        contest.enter(_OURS, model.session.run)
    except rivals.RivalError as exc:
        raise engine.ExecutionError(f"the model's outputs differ from the reference's: {exc}") from exc
    return contest


def _reference(model: Model, settings: Settings) -> engine.Session:
    return open_session(model.session.graph, settings.model_copy(update={"backend": "reference"}), None)


def _challenge(name: str, param: Path, args: argparse.Namespace, contest: Contest, model: Model) -> None:
    """Add another engine to the contest, or print why it cannot take part."""
    try:
        with progress(f"loading {name}"):
            contest.enter(*rivals.load(name, param, {"onnx": args.onnx, "ncnn": args.ncnn}, _threads(model)))
    except rivals.RivalError as exc:
        print(printable(f"{name}: {exc}"), file=sys.stderr)


def _kernels(model: Model, inputs: list[Array]) -> list[dict[str, Any]]:
    """Return the kernels of a run (operators on the reference back end), each with its least time of several runs."""
    profiles = []
    for _ in range(_PROFILES):
        outputs = model.session.run(inputs, profile=True)
        rows = outputs.kernels or [{**row, "operators": [row["name"]]} for row in outputs.profile or []]
        profiles.append(rows)
    return fastest_kernels(profiles)


def _threads(model: Model) -> int:
    return model.session.threads or 1


def _heading(name: str, model: Model) -> str:
    return f"{display_name(name)}, {counted(_threads(model), 'thread')}"


def _peak() -> float | None:
    with suppress(engine.CompileError):
        return engine.measure_peak()
    return None


def _items(inputs: list[Array]) -> int:
    return int(inputs[0].shape[0]) if inputs and inputs[0].ndim else 1
