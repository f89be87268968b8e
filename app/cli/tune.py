"""``pnnx-serve tune``: ways to run a model, measured against each other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.cli.arguments.shapes import example_specs
from app.cli.wording import trials
from app.progress import progress, telling
from app.settings import Settings
from app.thread_limits import thread_budget
from app.trials.candidates import Candidate, Grid
from app.trials.inputs import random_inputs
from app.trials.tuning import Surroundings, tune


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Make, check, measure, report; 1 when one of them could not take part."""
    threads = thread_budget(settings.threads).threads
    candidates = _candidates(args, threads)
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        model = models.prepare(found, models.load(models.newest(found), settings), settings)
    specs = example_specs(model, args.shape)
    if specs is None:
        raise UsageError("the model leaves its input's size open, so there is nothing to run it on: --shape names one")
    table = trials.Table(found.name)
    with telling(f"tuning {found.name}") as show:

        def tell(event: Mapping[str, Any]) -> None:
            table.take(event)
            show(table.doing)

        around = Surroundings(settings=settings, threads=threads)
        tune(found.name, model.session, candidates, random_inputs(specs), args.seconds, around, tell)
    sys.stdout.write(table.text())
    return int(table.has_problem)


def _candidates(args: argparse.Namespace, threads: int) -> list[Candidate]:
    wide: dict[str, Any] = {
        "winograd": {"winograd": ("auto", "off")},
        "passes": {"passes_off": ((), ("all",))},
        "backend": {"backend": ("compiled", "reference")},
        "kernels": {"tune": (False, True)},
    }
    chosen = {key: value for name in args.vary for key, value in wide[name].items()}
    try:
        return Grid(batch=tuple(dict.fromkeys(args.batch)), **chosen).candidates(threads)
    except ValueError as exc:
        raise UsageError(_brief(exc)) from None


def _brief(exc: ValueError) -> str:
    """What pydantic has to say on many lines, on one."""
    if isinstance(exc, ValidationError):
        first = exc.errors(include_url=False)[0]
        return f"--{first['loc'][0]}: {first['msg']}, found {first['input']}"
    return str(exc)
