"""Table of operators, slowest beside PyTorch first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.layers.measure import Record
from benchmarks.raw import write
from benchmarks.report import table

# More than this many processes that want to run are not ours alone.
QUIET: Final = 1.2


def line(record: Record) -> str:
    """Return a record as one line."""
    if record.failure or not record.ours_s:
        return f"{record.case.name:<40} {record.failure or 'right'}"
    ours, theirs = (f"{min(each) * 1e6:>10.1f} us" for each in (record.ours_s, record.torch_s))
    return f"{record.case.name:<40} ours {ours}   torch {theirs}   {record.ratio():>6.2f}"


def save(path: Path, machine: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Write PATH.md and PATH.json; the page of results takes the summary and the ten slowest operators."""
    text = markdown(machine, records)
    head, *body = text.split("\n\n", 2)[1:]
    lines = "\n\n".join(body).splitlines()
    data = {"kind": "layers", "machine": dict(machine), "how": head.splitlines()[-1].rstrip("."),
            "body": "\n".join(lines[:14]), "records": [record.to_json() for record in records]}  # fmt: skip
    write(path, text, data)


def markdown(machine: Mapping[str, Any], records: Sequence[Record]) -> str:
    """Return the whole report."""
    timed = sorted((record for record in records if record.ours_s), key=Record.ratio, reverse=True)
    ratios = [record.ratio() for record in timed]
    parts = [_header(machine)]
    if timed:
        median, slower = statistics.median(ratios), sum(ratio > 1 for ratio in ratios)
        parts.append(f"{len(timed)} operators: ours / torch {median:.2f} at the median, {slower} slower than torch.")
        titles = ["operator", "size", "ours", "torch", "ours / torch", "by medians"]
        parts.append(table(titles, [_row(record) for record in timed]))
    failed = [f"- {record.case.name}: {record.failure}" for record in records if record.failure]
    if failed:
        parts += ["## Wrong, so not timed", "\n".join(failed)]
    return "\n\n".join(parts) + "\n"


def _header(machine: Mapping[str, Any]) -> str:
    shared = (
        f"The machine was shared: other processes were running (load {machine['load']}). Both took turns, so ratios "
        "are worth more than times."
        if machine["load"] > QUIET
        else "The machine did nothing else."
    )
    return (
        f"# Operators, measured {machine['date']} UTC\n\n"
        f"{machine['processor']}; {machine['system']}, Python {machine['python']}, commit {machine['commit']}, "
        f"{machine['engines']['torch']}. {shared}\n"
        "Times are µs, fastest turn / median turn; one thread each. Columns are defined in benchmarks/README.md."
    )


def _row(record: Record) -> list[str]:
    times = [f"{min(each) * 1e6:.1f} / {statistics.median(each) * 1e6:.1f}" for each in (record.ours_s, record.torch_s)]
    return [
        record.case.name,
        record.case.size,
        *times,
        f"{record.ratio():.2f}",
        f"{record.ratio(statistics.median):.2f}",
    ]
