"""Tables of network records: times by threads and batch, start-up and memory, times beside a busy core."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from app.render.formatting import counted
from benchmarks.raw import write
from benchmarks.record import OURS, Record

NOTHING = "–"


def ratio(records: Sequence[Record], *, median: bool = False) -> tuple[float, str] | None:
    """Return the best rival's time divided by ours, and its name; None if there is no time of ours or of a rival.

    Args:
        records: of one network, number of threads and batch.
        median: compare medians instead of fastest runs.
    """
    times = {record.engine: record.median_s if median else record.best_s for record in records}
    ours = times.pop(OURS, None)
    rivals = {engine: seconds for engine, seconds in times.items() if seconds is not None}
    if ours is None or not rivals:
        return None
    best = min(rivals, key=rivals.__getitem__)
    return rivals[best] / ours, best


def markdown(machine: Mapping[str, Any], records: Sequence[Record]) -> str:
    """Return the whole report."""
    engines = list(dict.fromkeys(record.engine for record in records))
    titles = {engine: machine["engines"].get(engine, engine) for engine in engines}
    parts = [_header(machine)]
    for threads, batch in sorted({(record.threads, record.batch) for record in records}):
        chosen = [record for record in records if (record.threads, record.batch) == (threads, batch)]
        parts += [f"## {counted(threads, 'thread')}, batch {batch}", _times(chosen, titles)]
    parts += ["## From files to the first answer, and memory after it", _building(records, titles)]
    if any(record.busy_times_s for record in records):
        parts += ["## One core kept busy by another process", _busy(records, titles)]
    failures = list(_failures(records, titles))
    if failures:
        parts += ["## Not timed", "\n".join(failures)]
    return "\n\n".join(parts) + "\n"


def save(path: Path, machine: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Write the report as PATH.md and PATH.json."""
    data = {"kind": "networks", "machine": dict(machine), "records": [record.to_json() for record in records]}
    write(path, markdown(machine, records), data)


def pair_table(
    records: Sequence[Mapping[str, Any]], engines: tuple[str, str], titles: tuple[str, str], ratio: str
) -> str:
    """Return a table of two engines' times: milliseconds by fastest run, the second's time divided by the first's.

    Args:
        records: a network each; under the name of an engine its fastest and its median time, in seconds.
        engines: names in the records.
        titles: of their columns.
        ratio: title of the ratio by fastest runs.
    """
    first, second = engines
    ratios = [[each[second][k] / each[first][k] for k in (0, 1)] for each in records]
    lines = [
        [each["network"], ms(each[first][0]), ms(each[second][0]), *(f"{share:.3f}" for share in pair)]
        for each, pair in zip(records, ratios, strict=True)
    ]
    means = [f"{geometric_mean(column):.3f}" for column in zip(*ratios, strict=True)]
    return table(["network", *titles, ratio, "of medians"], [*lines, ["geometric mean", "", "", *means]])


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, aligned for reading as text: the first column left, the others right."""
    cells = [list(titles), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    lines = [_line(row, widths) for row in cells]
    rule = [f"{'-' * width}:" if column else "-" * (width + 1) for column, width in enumerate(widths)]
    return "\n".join([lines[0], f"|{'|'.join(f'-{dashes}' for dashes in rule)}|", *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    return f"| {' | '.join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])} |"


def _header(machine: Mapping[str, Any]) -> str:
    return (
        f"# Networks, measured {machine['date']} UTC\n\n"
        f"{machine['processor']}, {counted(machine['cores'], 'core')}; {machine['system']}, "
        f"Python {machine['python']}, commit {machine['commit']}.\nTimes are ms, fastest run / median; float32. "
        "Columns are defined in benchmarks/README.md."
    )


def _times(records: Sequence[Record], titles: Mapping[str, str]) -> str:
    rows = []
    for network, group in _by_network(records):
        by_engine = {record.engine: record for record in group}
        cells = [_time(by_engine.get(engine)) for engine in titles]
        rows.append([network, *cells, _ratio(ratio(group)), _ratio(ratio(group, median=True))])
    return table(["network", *titles.values(), "best rival / ours", "by medians"], rows)


def _time(record: Record | None) -> str:
    if record is None or record.best_s is None or record.median_s is None:
        return NOTHING
    return f"{ms(record.best_s)} / {ms(record.median_s)}"


def _ratio(found: tuple[float, str] | None) -> str:
    return NOTHING if found is None else f"{found[0]:.2f} ({found[1]})"


def _building(records: Sequence[Record], titles: Mapping[str, str]) -> str:
    rows = [
        [
            *(record.network, titles[record.engine], str(record.threads), str(record.batch)),
            *(_number(each, "{:.2f}") for each in (record.build_s, record.second_s, record.warm_build_s)),
            *(_number(_mb(record.rss_bytes), "{:.0f}"), _number(_mb(record.pss_bytes), "{:.0f}")),
            _number(record.error_share, "{:.1e}"),
        ]
        for record in records
        if record.build_s is not None
    ]
    return table(
        ["network", "engine", "threads", "batch", "cold s", "second s", "warm s", "RSS MB", "PSS MB", "error"], rows
    )


def _busy(records: Sequence[Record], titles: Mapping[str, str]) -> str:
    rows = [
        [
            *(record.network, titles[record.engine], str(record.threads), str(record.batch)),
            *(f"{ms(record.median_s or 0)}", _number(record.busy_slowdown, "{:.2f}")),
        ]
        for record in records
        if record.busy_slowdown is not None
    ]
    return table(["network", "engine", "threads", "batch", "quiet median ms", "busy / quiet"], rows)


def _failures(records: Sequence[Record], titles: Mapping[str, str]) -> Iterator[str]:
    for record in records:
        if record.failure:
            where = f"{record.network}, {counted(record.threads, 'thread')}, batch {record.batch}"
            yield f"- {titles[record.engine]} ({where}): {record.failure}"


def _by_network(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    for network in dict.fromkeys(record.network for record in records):
        yield network, [record for record in records if record.network == network]


def ms(seconds: float) -> str:
    """Return milliseconds with three significant digits."""
    milliseconds = seconds * 1e3
    return f"{milliseconds:.{2 if milliseconds < 10 else 1 if milliseconds < 100 else 0}f}"


def _mb(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)
