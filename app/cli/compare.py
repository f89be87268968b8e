"""``pnnx-serve compare``: find where a model's values first differ from a recording."""

from __future__ import annotations

import argparse
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.cli.output import write_json
from app.errors import InvalidRequestError
from app.messages import printable
from app.models.sessions import open_session, read_graph
from app.progress import progress
from app.render.formatting import counted
from app.render.table import aligned
from app.settings import Settings
from app.thread_limits import thread_budget

_TITLES: Final = ("#", "operator", "type", "operand", "max error", "of scale", "")
_NUMBERS: Final = frozenset({"#", "max error", "of scale"})


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Compare and return 1 if the model diverges."""
    for name in ("rtol", "atol"):
        value = getattr(args, name)
        if value is not None and not value >= 0:
            raise UsageError(f"--{name}: found {value}, expected a number that is not negative")
    recorded = read_recording(args.reference)
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        graph = read_graph(models.newest(found), settings)
        session = open_session(graph, settings, thread_budget(settings.threads).threads)
    with progress(f"comparing {found.name}"):
        comparison = engine.compare(session, recorded, rtol=args.rtol, atol=args.atol)
    if args.json:
        write_json(_plain(comparison, found.name, session.backend))
    else:
        sys.stdout.write(report(comparison, f"{found.name} · {session.backend} back end"))
    return int(comparison.first is not None)


def read_recording(path: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Raises:
        InvalidRequestError: the file is not an .npz file, is damaged, or holds pickled objects.
        OSError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise InvalidRequestError(f"'{path}' is an .npy file, expected an .npz file with named arrays")
            return {name: content[name] for name in content.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as exc:
        raise InvalidRequestError(f"'{path}' is damaged or not an .npz file: {exc}") from None


def report(comparison: engine.Comparison, about: str) -> str:
    """Return the report."""
    lines = [f"{about} · {counted(len(comparison.rows), 'recorded value')}", ""]
    lines += aligned([_TITLES, *map(_cells, comparison.rows)], _NUMBERS)
    lines += ["", *_verdict(comparison), *map(_origin, comparison.origins)]
    return "\n".join([*map(printable, lines), ""])


def _plain(comparison: engine.Comparison, name: str, backend: str) -> dict[str, Any]:
    return {"model": name, "backend": backend, "diverges": comparison.first is not None, **asdict(comparison)}


def amount(difference: engine.Difference) -> str:
    """Return ``max error 0.31, 12 % of the largest value``, or the reason why values cannot be compared."""
    if difference.problem is not None:
        return difference.problem
    return f"max error {difference.max_abs:.3g}, {100 * difference.relative:.2g} % of the largest value"


def _cells(row: engine.ComparedValue) -> tuple[str, ...]:
    difference = row.difference
    operand = row.operand if row.output is None else f"{row.operand} ({row.output})"
    compared = difference.problem is None
    return (
        str(row.index),
        row.operator,
        row.type,
        operand,
        f"{difference.max_abs:.3g}" if compared else "–",
        f"{difference.relative:.2g}" if compared else "–",
        f"diverges: {difference.problem}" if not compared else "diverges" if difference.diverges else "ok",
    )


def _verdict(comparison: engine.Comparison) -> Iterator[str]:
    first = comparison.first
    if first is None:
        yield "no divergence"
        return
    place = f"operand {first.operand}" if first.output is None else f"{first.output}, operand {first.operand}"
    yield f"first divergence: {first.operator} ({first.type}), {place}: {amount(first.difference)}"
    others = [name for name in comparison.suspects if name != first.operator]
    if others:
        yield f"not recorded before it, so the cause may be there: {_first_names(others)}"


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _origin(origin: engine.NonFiniteOrigin) -> str:
    made = f"{origin.operator} ({origin.type}), operand {origin.operand}" + " out of infinities" * origin.from_infinity
    known = {None: "", True: "; the reference has it too", False: "; the reference has none there"}
    share = f"{origin.count} of {counted(origin.size, 'element')}"
    return f"first {origin.kind}: made by {made}: {share}{known[origin.in_reference]}"
