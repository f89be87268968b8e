"""Write the simulation's figures into docs/scaling.md.

    python -m benchmarks.scale.page [--check]      # after: python -m benchmarks.scale --save scale

Tables are written anew, and the figures in sentences: each sentence is listed here with holes for its figures. A
sentence that is not found, or a claim that the figures no longer support, is an error: it must be rewritten by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.raw import unpack
from benchmarks.scale.__main__ import world
from benchmarks.scale.measure import TIMES

PAGE: Final = ROOT / "docs/scaling.md"
RESULTS: Final = ROOT / "benchmarks/results/scale.json.gz"
_FIGURE: Final = r"([\d,]+(?:\.\d+)?)"


class PageError(Exception):
    """Raised if the page and the figures disagree in a way that new figures alone cannot repair."""


class Results:
    """Results of the simulation and its input."""

    def __init__(self, results: Path, times: Path) -> None:
        self._rows: list[dict[str, Any]] = unpack(results)["records"]
        self.world, _ = world(times, 0, 0.0)

    def rows(self, scenario: str, **where: object) -> list[dict[str, Any]]:
        """Return the rows of a scenario with these column values; spaces of names are underscores."""
        wanted = {key.replace("_", " "): value for key, value in where.items()}
        return [
            row for row in self._rows
            if row["scenario"] == scenario and all(row[key] == value for key, value in wanted.items())
        ]  # fmt: skip

    def figure(self, scenario: str, column: str, **where: object) -> float:
        """Return one figure.

        Raises:
            PageError: it is none, or there is not one row like that.
        """
        found = self.rows(scenario, **where)
        try:
            (row,) = found
            return float(row[column])
        except ValueError:
            raise PageError(
                f"{scenario}: {where}: found {[row.get(column) for row in found]}, expected a figure"
            ) from None


def sentences(found: Results) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield sentences of the page with holes ({}), and the figures that belong there."""

    def waits(nodes: int, balancing: str, arrivals: str = "Poisson") -> float:
        return found.figure("sizes", "p99 ms", nodes=nodes, balancing=balancing, arrivals=arrivals)

    yield (
        "random balancing has a p99 of {} ms with ten nodes and of {} ms with a thousand; least request has {} to {} "
        "ms",
        tuple(
            _whole(waits(nodes, balancing))
            for balancing, nodes in (("random", 10), ("random", 1000), ("least request", 1000), ("least request", 10))
        ),
    )

    def batch(load: str, at_once: object) -> float:
        return found.figure("batches", "least request: p99", load=load, runs_of=8, at_once=at_once)

    yield (
        "which nodes can answer only with batches, the p99 is {} ms; with `maxconn 16` it is {} ms",
        (_whole(batch("1.2", 2)), f"{batch('1.2', 16):.1f}"),
    )

    def lost(nodes: int, count: int, by: str, tries: int, column: str = "failed") -> float:
        return found.figure("losses", column, nodes=nodes, lost=count, noticed_by=by, sent_at_most=tries)

    shares = [100 * lost(10, 1, "checks", tries) / lost(10, 1, "checks", tries, "of") for tries in (1, 2)]
    counted = "checks, 10 errors"
    yield (
        "Of {} requests, {} % fail, or {} % if clients retry once. If the balancer counts refused connections, {} "
        "fail, or {} if clients retry.",
        (
            _whole(lost(10, 1, "checks", 1, "of")),
            *map(_whole, shares),
            _whole(lost(10, 1, counted, 1)),
            _whole(lost(10, 1, counted, 2)),
        ),
    )
    yield (
        "{} requests of {} fail, none if clients retry",
        (_whole(lost(1000, 1, counted, 1)), _thousands(lost(1000, 1, counted, 1, "of"))),
    )
    yield (
        "{} requests of {} fail, {} if clients retry; then 90 % load",
        (
            _whole(lost(100, 33, counted, 1)),
            _thousands(lost(100, 33, counted, 1, "of")),
            _whole(lost(100, 33, counted, 2)),
        ),
    )
    rate = 0.7 * 1000 / found.world.heavy.mean_s()
    yield (
        "1,000 nodes at 70 % load answer {} images per second; with 50 kB each that is {} Gbit/s",
        (_thousands(rate), f"{rate * 50e3 * 8 / 1e9:.0f}"),
    )
    seen = [found.figure("balancers", "p99 ms", balancers=count, balancing="least request") for count in (1, 10, 100)]
    yield (
        "p99 of 1,000 nodes with least request: {} ms with one balancer, {} ms with ten, {} ms with a hundred "
        "(random: {} ms)",
        (*map(_whole, seen), _whole(waits(1000, "random"))),
    )
    yield "A hundred cells of ten nodes have a p99 of {} ms", (_whole(waits(10, "least request")),)
    yield "p99 {} ms with 100 nodes and with 1,000", (_whole(waits(100, "least request", "bursts")),)


def tables(found: Results) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield heads of tables and their rows."""
    policies = ("random", "round robin", "two choices", "least request")
    rows = []
    for requests, title in (("alike", "uniform"), ("heavy-tailed", "heavy-tailed")):
        for load in ("0.70", "0.85"):
            values = [found.figure("tails", f"{policy}: p99", requests=requests, load=load) for policy in policies]
            cells = [f"**{value:.1f}**" if value == min(values) else f"{value:.1f}" for value in values]
            rows.append([f"{title}, {_percent(load)}", *cells])
    yield "| requests, load | random | round robin | two choices | least request |", rows
    kept = [row for row in found.rows("costs") if row["nodes"] != 100 or row["balancing"] == "least request"]
    yield (
        "| nodes | balancing | load | requests/s | $ per million at $0.08 per node-hour |",
        [
            [f"{row['nodes']:,}", row["balancing"], _percent(row["load"]),
             f"{float(row['requests/s']):,.0f}", f"{float(row['$ a million']):.2f}"]
            for row in kept
        ],
    )  # fmt: skip
    refused = [float(row["refused %"]) for row in found.rows("starts")]
    yield (
        "| new nodes | refused requests |",
        [
            ["have compiled code in the cache (ready after 1.3 s)", f"{refused[0]:.1f} %"],
            ["compile first", f"{refused[1]:.1f} %"],
            ["take half a minute to start", f"{refused[2]:.0f} %"],
            ["none", f"{refused[3]:.0f} %"],
        ],
    )
    yield (
        "| load | random (a Service) | least request, ten nodes |",
        [
            [_percent(row["load"]), f"{float(row['random']):.1f}", f"{float(row['least request']):.1f}"]
            for row in found.rows("inflight") if row["load"] != "0.60"
        ],
    )  # fmt: skip


def claims(found: Results) -> Iterator[tuple[str, bool]]:
    """Yield the page's statements about these figures, and whether they hold."""

    def waits(nodes: int, arrivals: str = "Poisson", balancing: str = "least request") -> float:
        return found.figure("sizes", "p99 ms", nodes=nodes, arrivals=arrivals, balancing=balancing)

    def batch(policy: str) -> float:
        return found.figure("batches", f"{policy}: p99", load="1.6", runs_of=8, at_once="all")

    def in_flight(load: str, policy: str) -> float:
        return found.figure("inflight", policy, load=load)

    yield "more servers do not mend it", waits(1000, balancing="random") > 0.8 * waits(1, balancing="-")
    yield "with least request as long from ten nodes on", waits(1000) > 0.9 * waits(10)
    yield "nodes do not average out what they all get", waits(1000, "bursts") > 0.9 * waits(100, "bursts")
    yield "with batching round robin is as good as least request", batch("round robin") < 1.15 * batch("least request")
    alike = [
        found.figure("tails", f"{each}: p99", requests="alike", load="0.70")
        for each in ("round robin", "least request")
    ]
    yield "round robin is as good where requests are alike", alike[0] <= alike[1]
    yield "2 in flight is 70 % behind a Service", 1.6 < in_flight("0.70", "random") < 2.4
    yield "2 in flight is more than 90 % behind a balancer that counts", in_flight("0.90", "least request") < 2
    yield "none is refused where 16 nodes are there already", found.rows("starts")[-1]["refused"] == 0
    behind = found.figure("balancers", "p99 ms", balancers=100, balancing="least request")
    yield "a hundred balancers are as bad as at random", behind > 0.85 * waits(1000, balancing="random")
    asked_twice = {"nodes": 1000, "lost": 1, "noticed_by": "checks, 10 errors", "sent_at_most": 2}
    yield "a lost node of 1,000 is none where clients ask twice", found.figure("losses", "failed", **asked_twice) == 0


def rewritten(text: str, found: Results) -> str:
    """Return the page with these figures.

    Raises:
        PageError: a sentence or table is not there, or does not hold any more.
    """
    if wrong := [claim for claim, holds in claims(found) if not holds]:
        raise PageError(f"the page says what the figures do not: {'; '.join(wrong)}")
    for sentence, figures in sentences(found):
        pattern = _FIGURE.join(re.escape(part).replace(r"\ ", r"\s+") for part in sentence.split("{}"))
        matches = list(re.finditer(pattern, text))
        if len(matches) != 1:
            raise PageError(f"found {len(matches)} times, expected once: {sentence}")
        for place, figure in reversed(list(enumerate(figures, start=1))):
            start, end = matches[0].span(place)
            text = text[:start] + figure + text[end:]
    for head, rows in tables(found):
        before, is_there, after = text.partition(f"{head}\n")
        if not is_there:
            raise PageError(f"found no table: {head}")
        lines = after.splitlines(keepends=True)
        count = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
        body = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        text = before + is_there + lines[0] + body + "".join(lines[count:])
    return text


def _percent(share: str) -> str:
    return f"{100 * float(share):.0f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _thousands(value: float) -> str:
    return f"{round(value, -3):,.0f}"


def main() -> int:
    """Rewrite the page."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="results saved by benchmarks.scale")
    parser.add_argument("--times", type=Path, default=TIMES, help="service times of the simulation")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the page would change")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    try:
        made = rewritten(text, Results(options.results, options.times))
    except PageError as exc:
        print(f"{PAGE.name}: {exc}", file=sys.stderr)
        return 1
    if not options.check:
        PAGE.write_text(made, encoding="utf-8")
    changed = sum(1 for line in made.splitlines() if line not in text.splitlines())
    print(f"{PAGE.name}: {changed} lines are others")
    return int(options.check and made != text)


if __name__ == "__main__":
    sys.exit(main())
