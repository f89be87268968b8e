"""Stand-alone HTML report of a model and a measured run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.console.pictures import memory, timeline
from app.render import render, with_times
from app.render.formatting import count_text, percent_text, shape_text, time_text, totals_text
from app.render.svg.markup import element, text
from app.version import version

_STYLE: Final = """
:root{--page:#f6f7f9;--card:#fff;--line:#e1e5eb;--ground:#eef0f4;--ink:#131820;--soft:#535e6e;
--heat:#d9480f;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--page:#0c0f14;--card:#14181f;--line:#262d38;--ground:#1f2630;--ink:#e8ecf2;
--soft:#a4afbf}}
*{box-sizing:border-box}
body{margin:0 auto;padding:32px 24px 64px;max-width:1180px;background:var(--page);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
h1{font-size:24px;margin:0;letter-spacing:-.015em}h2{font-size:16px;margin:0 0 12px}
p{margin:4px 0 20px;color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:18px 20px;margin-bottom:18px;overflow-x:auto}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 18px}
dl div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
dt{color:var(--soft);font-size:12px}dd{margin:0;font-size:19px;font-weight:600}
.run{display:block;width:100%;min-width:720px}
.run text{font:500 11px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--soft)}
.run .on{fill:#fff;pointer-events:none}.run .label{fill:var(--ink)}
.run .ground{fill:var(--ground)}.run .line{stroke:var(--line);fill:none}
.run .peak{stroke:var(--heat);stroke-dasharray:6 4;fill:none}
table{width:100%;border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--soft);font-weight:600}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);white-space:nowrap}
td.n,th.n{text-align:right}
td i{display:inline-block;height:8px;border-radius:2px;background:var(--heat);margin-right:8px}
svg{max-width:100%;height:auto}
"""


def report(description: Mapping[str, Any], profile: Mapping[str, Any] | None) -> str:
    """Return the page.

    Args:
        description: the engine's description of the graph.
        profile: measured run, or None.
    """
    name = str(description.get("name") or "graph")
    times = profile["operators"] if profile is not None else []
    drawing = render(with_times(description, times), "svg")
    body = [element("h1", text(name)), element("p", text(_about(description, profile)))]
    if profile is not None:
        rows = _rows(profile)
        operands = description["operands"]
        pictures = {
            "Timeline by thread": timeline(rows),
            "Memory over time": memory(profile.get("buffers") or (), rows, operands),
        }
        body.append(_tiles(profile, rows))
        body += [_section(title, picture) for title, picture in pictures.items() if picture]
        body.append(_section("Kernels by time", _table(rows)))
    body += [_section("Inputs and outputs", _ports(description)), _section("Graph", drawing)]
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        element("title", text(f"{name}: report")),
        f"<style>{_STYLE}</style>",
    ]
    return f'<!doctype html><html lang="en"><head>{"".join(head)}</head><body>{"".join(body)}</body></html>\n'


def _about(description: Mapping[str, Any], profile: Mapping[str, Any] | None) -> str:
    totals = description.get("totals") or {}
    words = [totals_text({"operators": len(description["operators"]), **totals}), f"pnnx-serve {version()}"]
    if profile is not None:
        threads = profile["threads"]
        words.insert(1, f"{profile['backend']}, {threads} thread{'' if threads == 1 else 's'}")
        host = profile["host"]
        words += [f"{host['cpu']}, {host['level']}"] if host else []
    return " · ".join(words)


def _rows(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return kernels, or operators of the reference, with their share of the time."""
    found = profile["kernels"] or [{**row, "operators": [row["name"]], "flops": 0} for row in profile["operators"]]
    total = sum(row["time_us"] for row in found)
    return [{**row, "share": row["time_us"] / total if total else 0.0} for row in found]


def _tiles(profile: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    flops = sum(row["flops"] for row in rows)
    tiles = [("One run", time_text(profile["time_us"])), ("Kernels", str(len(rows)))]
    if flops and profile["time_us"]:
        rate = flops / profile["time_us"] * 1e6
        tiles += [("Work", count_text(flops, "FLOP")), ("Rate", count_text(rate, "FLOP/s"))]
        measured = (profile["host"] or {}).get("measured") or {}
        if peak := (measured.get("flops_per_s") or 0) * (profile["threads"] or 1):
            tiles.append(("Share of peak", percent_text(rate / peak)))
    if profile["peak_bytes"]:
        tiles.append(("Memory of a run", count_text(profile["peak_bytes"], "B")))
    pairs = (element("div", element("dt", text(title)), element("dd", text(value))) for title, value in tiles)
    return element("dl", *pairs)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    ordered = sorted(rows, key=lambda row: -row["time_us"])
    titles = (("Operators", ""), ("Kernel", ""), ("Time", "n"), ("Share", "n"), ("Rate", "n"))
    head = element("tr", *(element("th", text(title), class_=kind) for title, kind in titles))
    return element("table", head, *(element("tr", *_cells(row)) for row in ordered))


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    first, *others = row["operators"]
    yield element("td", text(first + (f" + {len(others)}" if others else "")), title="\n".join(row["operators"]))
    yield element("td", text(row["kernel"]))
    yield element("td", text(time_text(row["time_us"])), class_="n")
    bar = element("i", " ", style=f"width:{min(120.0, 400 * row['share']):.1f}px")
    yield element("td", bar, text(percent_text(row["share"])), class_="n")
    rate = row["flops"] / row["time_us"] * 1e6 if row["flops"] and row["time_us"] else None
    yield element("td", text("" if rate is None else count_text(rate, "FLOP/s")), " ", class_="n")


def _ports(description: Mapping[str, Any]) -> str:
    rows = [
        element("tr", *(element("td", text(str(cell))) for cell in _port(word, port)))
        for word, side in (("in", "inputs"), ("out", "outputs"))
        for port in description[side]
    ]
    return element("table", *rows)


def _port(word: str, port: Mapping[str, Any]) -> tuple[str, ...]:
    shape = shape_text(port["shape"], port.get("size_names", ()))
    return word, port["name"], shape or "unknown", port["dtype"] or "unknown"


def _section(title: str, inner: str) -> str:
    return element("section", element("h2", text(title)), inner)
