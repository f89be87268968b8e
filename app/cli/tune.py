"""``pnnx-serve tune``: measure ways to run a model against each other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.cli.output import write_json
from app.messages import explain_validation, printable
from app.progress import telling
from app.render.formatting import counted, time_text
from app.render.table import aligned
from app.settings import Settings
from app.thread_limits import thread_budget
from app.trials.sessions import Candidate, Grid, random_inputs
from app.trials.tuning import Surroundings, tune

_TITLES: Final = ("median", "min", "items/s", "error", "candidate")


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Make, check, measure and report; return 1 if a candidate could not take part."""
    threads = thread_budget(settings.threads).threads
    candidates = _candidates(args, threads)
    found, _, model = models.load(args.model, settings)
    specs = models.needed_specs(model, args.shape)
    table = Table(found.name)
    with telling(f"tuning {found.name}") as show:

        def tell(event: Mapping[str, Any]) -> None:
            table.take(event)
            show(table.doing)

        around = Surroundings(settings=settings, threads=threads)
        tune(found.name, model.session, candidates, random_inputs(specs), args.seconds, around, tell)
    if args.json:
        write_json(table.plain())
    else:
        sys.stdout.write(table.text())
    return int(table.has_problem)


def _candidates(args: argparse.Namespace, threads: int) -> list[Candidate]:
    wide: dict[str, Any] = {
        "winograd": {"winograd": ("auto", "off")},
        "passes": {"passes_off": ((), ("all",))},
        "backend": {"backend": ("compiled", "reference")},
        "precision": {"precision": ("float32", "bf16")},
    }
    chosen = {key: value for name in args.vary for key, value in wide[name].items()}
    try:
        return Grid(batch=tuple(dict.fromkeys(args.batch)), **chosen).candidates(threads)
    except ValueError as exc:
        raise UsageError(_brief(exc)) from None


def _brief(exc: ValueError) -> str:
    """Return a pydantic error as one line in our own words."""
    if isinstance(exc, ValidationError):
        first = exc.errors(include_url=False)[0]
        return f"--{first['loc'][0]}: {explain_validation(first)}"
    return str(exc)


class Table:
    """Table of the events received so far.

    Args:
        name: name of the model.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: dict[int, dict[str, Any]] = {}
        self._done: Mapping[str, Any] = {}
        self.doing = ""

    def take(self, event: Mapping[str, Any]) -> None:
        """Add an event of ``app.trials.tuning``."""
        kind = event["event"]
        if kind == "plan":
            self._rows = {row["id"]: dict(row) for row in event["candidates"]}
        elif kind == "done":
            self._done = event
        else:
            row = self._rows[event["id"]]
            row |= event
            name = candidate_text(row)
            self.doing = f"{name}: {event['text']}" if kind == "doing" else name

    @property
    def has_problem(self) -> bool:
        """Return whether a candidate failed."""
        return any(row.get("problem") for row in self._rows.values())

    def plain(self) -> dict[str, Any]:
        """Return candidates and recommendations as plain data."""
        unsaid = ("event", "text")
        rows = [{key: value for key, value in row.items() if key not in unsaid} for row in self._rows.values()]
        return {"model": self._name, "candidates": rows, **{k: self._done.get(k) for k in ("latency", "throughput")}}

    def text(self) -> str:
        """Return the table with the recommendations."""
        measured = sorted((row for row in self._rows.values() if "median_s" in row), key=lambda row: row["median_s"])
        lines = [f"{self._name} · {counted(len(self._rows), 'candidate')}, run in turn", ""]
        lines += aligned([_TITLES, *map(_cells, measured)], _TITLES[:-1])
        lines += [f"{candidate_text(row)}: {row['problem']}" for row in self._rows.values() if row.get("problem")]
        return "\n".join([*lines, *map(printable, self._winners()), ""])

    def _winners(self) -> Iterator[str]:
        titles: dict[int, list[str]] = {}
        for title, key in (("lowest latency", "latency"), ("highest throughput", "throughput")):
            if self._done.get(key) is not None:
                titles.setdefault(self._done[key], []).append(title)
        for at, words in titles.items():
            row = self._rows[at]
            yield from ("", f"{' and '.join(words)}: {candidate_text(row)}")
            recommendation = row["advice"]
            for where, what in (("config.toml", recommendation["config"]), ("settings", recommendation["settings"])):
                yield from ([f"  {where}:", *(f"    {line}" for line in what.splitlines())] if what else [])
            yield from ("  to reproduce:", f"    {recommendation['command']}")


def candidate_text(row: Mapping[str, Any]) -> str:
    """Return a candidate as a short phrase."""
    batch = f"batch {row['batch']}"
    if row["backend"] == "reference":
        return f"reference, {batch}"
    words = [counted(row["threads"], "thread"), batch]
    words += [row["precision"]] if row["precision"] != "float32" else []
    words += ["no Winograd"] if row["winograd"] == "off" else []
    count = len(row["passes_off"])
    words += ["without 1 pass" if count == 1 else f"without {count} passes"] if count else []
    return ", ".join([*words, *(["as served now"] if row["served"] else [])])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    per_second = row["per_second"]
    rate = f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.3g}"
    error = "-" if row.get("share") is None else f"{row['share']:.0e}"
    times = (time_text(row[key] * 1e6) for key in ("median_s", "least_s"))
    return (*times, rate, error, candidate_text(row))
