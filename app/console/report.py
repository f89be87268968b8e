"""Stand-alone HTML report of a model and a measured run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

from app.console.profiling import inputs_to_measure, profile
from app.console.quantisation import measured_times
from app.errors import InvalidRequestError
from app.models.folder.repository import ModelFiles
from app.models.model import Model
from app.render import render, with_times
from app.render.caption import COLOURS
from app.render.formatting import count_text, percent_text, shape_text, text_width, time_text, totals_text
from app.render.svg.markup import element, number, text
from app.settings import Settings
from app.version import version

KINDS: Final[Mapping[str, str]] = {
    "conv": "conv", "winograd": "conv", "depthwise": "conv", "grouped": "conv", "dots": "conv",
    "gemm": "linear", "matmul": "linear",
    "pool": "pool", "softmax": "activation", "attention": "attention", "map": "expression", "transpose": "shape",
    "reduce": "reduce",
}  # fmt: skip
_WIDTH: Final = 1120
_LANE, _NAME, _TOP = 30, 20, 24
_HEIGHT, _LEFT, _BOTTOM = 280, 70, 24
# Minimum width of a bar in pixels; narrower ones are invisible and numerous.
_LEAST: Final = 0.15
_LETTERS: Final = 11


@dataclass(frozen=True, slots=True)
class _Span:
    row: Mapping[str, Any]
    thread: int
    begin: float
    end: float


def timeline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the timeline, one row per thread; visible background means waiting.

    Args:
        rows: kernels in execution order, or operators of the reference, which runs on one thread.
    """
    spans = [*_spans(rows)]
    total = max((span.end for span in spans), default=0.0)
    if not total:
        return ""
    threads = range(max(span.thread for span in spans) + 1)
    parts = [*_scale(total, len(threads))]
    for thread in threads:
        mine, top = [span for span in spans if span.thread == thread], _TOP + thread * (_LANE + _NAME)
        parts.append(_rect(0, top, _WIDTH, _LANE, class_="ground"))
        parts += [_bar(span, total, top) for span in mine if (span.end - span.begin) / total * _WIDTH > _LEAST]
        share = percent_text(sum(span.end - span.begin for span in mine) / total)
        parts.append(element("text", text(f"thread {thread}: busy {share}"), x=0, y=top + _LANE + 13))
    return _picture(_TOP + len(threads) * (_LANE + _NAME), parts)


def _spans(rows: Sequence[Mapping[str, Any]]) -> Iterator[_Span]:
    clock, is_traced = 0.0, any(row.get("spans") for row in rows)
    for row in rows:
        for span in row.get("spans", ()):
            yield _Span(row, span["thread"], span["begin_us"], span["end_us"])
        if not is_traced:
            yield _Span(row, 0, clock, clock := clock + row["time_us"])


def _scale(total: float, lanes: int) -> Iterator[str]:
    for at in range(6):
        x = at * _WIDTH / 6
        yield element("path", d=f"M{number(x)} 4V{_TOP + lanes * (_LANE + _NAME)}", class_="line")
        yield element("text", text(time_text(at * total / 6)), x=x + 4, y=14)


def _bar(span: _Span, total: float, top: float) -> str:
    x, width = span.begin / total * _WIDTH, (span.end - span.begin) / total * _WIDTH
    row, name = span.row, span.row["operators"][0]
    took = f"{name} · {row['kernel']} · {time_text(span.end - span.begin)} from {time_text(span.begin)}"
    title = element("title", text(took))
    bar = _rect(x, top, max(0.5, width - 0.5), _LANE, title, fill=COLOURS[KINDS.get(row["kernel"], "other")])
    if text_width(name, _LETTERS) > width - 8:
        return bar
    return bar + element("text", text(name), x=x + 5, y=top + _LANE / 2 + 4, class_="on")


def memory(
    buffers: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], operands: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the memory plan: kernels from left to right, addresses from bottom to top.

    Args:
        buffers: buffers of the run.
        rows: kernels, or operators of the reference, in execution order.
        operands: operands of the graph's description.
    """
    high = max((buffer["offset"] + buffer["bytes"] for buffer in buffers), default=0)
    if not high or not rows:
        return ""
    across, up = (_WIDTH - _LEFT) / len(rows), (_HEIGHT - _BOTTOM - 16) / high
    alive = [sum(each["bytes"] for each in buffers if each["first"] <= at <= each["last"]) for at in range(len(rows))]
    parts = []
    for at in range(5):
        y = _HEIGHT - _BOTTOM - at * high / 4 * up
        parts.append(element("path", d=f"M{_LEFT} {number(y)}H{_WIDTH}", class_="line"))
        parts.append(element("text", text(count_text(at * high / 4, "B")), x=_LEFT - 8, y=y + 4, text_anchor="end"))
    for each in buffers:
        x, y = _LEFT + each["first"] * across, _HEIGHT - _BOTTOM - (each["offset"] + each["bytes"]) * up
        width = (min(each["last"] + 1, len(rows)) - each["first"]) * across
        title = element("title", text(_about_buffer(each, rows, operands)))
        colour = COLOURS[each["family"]] if each["operands"] else COLOURS["constant"]
        parts.append(_rect(x, y, max(0.5, width - 1), max(0.5, each["bytes"] * up - 0.5), title, fill=colour))
    y = _HEIGHT - _BOTTOM - max(alive) * up
    parts.append(element("path", d=f"M{_LEFT} {number(y)}H{_WIDTH}", class_="peak"))
    label = f"peak {count_text(max(alive), 'B')}, at {rows[alive.index(max(alive))]['operators'][0]}"
    parts.append(element("text", text(label), x=_WIDTH, y=y - 5, text_anchor="end", class_="label"))
    parts.append(element("text", text(f"{len(rows)} kernels in execution order"), x=_LEFT, y=_HEIGHT - 6))
    return _picture(_HEIGHT, parts)


def _about_buffer(
    buffer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], operands: Mapping[str, Mapping[str, Any]]
) -> str:
    named = [f"{name} {shape_text(operands[name]['shape'])}" for name in buffer["operands"] if name in operands]
    until = rows[buffer["last"]]["operators"][0] if buffer["last"] < len(rows) else "the end"
    size = count_text(buffer["bytes"], "B")
    return f"{', '.join(named) or 'scratch of a kernel'} · {size} · {rows[buffer['first']]['operators'][0]} to {until}"


def _rect(x: float, y: float, width: float, height: float, *children: str, **more: str) -> str:
    places = {"x": round(x, 1), "y": round(y, 1), "width": round(width, 1), "height": round(height, 1)}
    return element("rect", *children, **{name: number(value) for name, value in places.items()}, **more)


def _picture(height: float, parts: Sequence[str]) -> str:
    return element("svg", *parts, viewBox=f"0 0 {_WIDTH} {number(height)}", class_="run", role="img")


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
.run .on{fill:#fff;pointer-events:none}
.run .label{fill:var(--ink);paint-order:stroke;stroke:var(--card);stroke-width:3px}
.run .ground{fill:var(--ground)}.run .line{stroke:var(--line);fill:none}
.run .peak{stroke:var(--heat);stroke-dasharray:6 4;fill:none}
table{width:100%;border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--soft);font-weight:600}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);white-space:nowrap}
td.n,th.n{text-align:right}
td i{display:inline-block;height:8px;border-radius:2px;background:var(--heat);margin-right:8px}
svg{max-width:100%;height:auto}
"""


def measured_report(
    model: Model,
    name: str,
    files: ModelFiles,
    settings: Settings,
    quantised: Mapping[str, Any] | None,
    shapes: Sequence[str] = (),
    sample: str | None = None,
) -> str:
    """Return the page of a model with a run; see ``inputs_to_measure`` for shapes and sample, and for errors.

    With dynamic sizes and without shapes or a sample there is no input, so the page has only the graph.
    """
    measured = None
    with nullcontext() if shapes or sample else suppress(InvalidRequestError):
        measured = profile(model, settings, *inputs_to_measure(model, files, settings, shapes, sample))
    return report({**model.session.describe(), "name": name}, measured, quantised)


def report(
    description: Mapping[str, Any], profile: Mapping[str, Any] | None, quantised: Mapping[str, Any] | None = None
) -> str:
    """Return the page.

    Args:
        description: the engine's description of the graph.
        profile: measured run, or None.
        quantised: report of the quantisation, or None.
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
    if quantised is not None:
        body.append(_section("Quantisation", _quantisation(quantised)))
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


def _quantisation(found: Mapping[str, Any]) -> str:
    times = measured_times(found["layers"])
    titles = ("Layer", "Precision", *times, "SQNR", "Error", "Restore")
    head = element("tr", *(element("th", text(each), class_="n" if at > 1 else "") for at, each in enumerate(titles)))
    rows = (element("tr", *_layer_cells(row, times.values())) for row in found["layers"])
    return element("p", text(quantisation_text(found))) + element("table", head, *rows)


def _layer_cells(row: Mapping[str, Any], times: Iterable[str]) -> Iterator[str]:
    yield element("td", text(row["name"]), title=row["type"])
    reason = f" ({row['reason']})" if row["reason"] else ""
    yield element("td", text(row["precision"] + reason))
    for key in times:
        yield element("td", text("" if row[key] is None else time_text(row[key])), " ", class_="n")
    noise = row["sqnr_db"]
    yield element("td", text("" if noise is None else f"{noise:.1f} dB"), " ", class_="n")
    yield element("td", text(percent_text(row["share"])), class_="n")
    sign = "-" if row["restore_us"] < 0 else "+"
    back = f"{sign}{time_text(abs(row['restore_us']))}, -{percent_text(row['restore_share'])}"
    yield element("td", text("" if row["precision"] == "float32" else back), " ", class_="n")


def quantisation_text(found: Mapping[str, Any]) -> str:
    """Return the summary of a quantisation: layers, times, what is kept, and the accuracy on labelled samples."""
    kinds = sorted({row["precision"] for row in found["layers"]} - {"float32"})
    count = sum(row["precision"] != "float32" for row in found["layers"])
    times = (time_text(1e3 * found[key]) for key in ("float_ms", "int8_ms"))
    words = [
        f"{count} of {len(found['layers'])} layers in {' and '.join(kinds) or 'fewer bits'}",
        " → ".join(times) + " a run",
    ]
    if found["kept"] is not None:
        words.append(f"{100 * found['kept']:.3f} % of the outputs' energy kept")
    if accuracy := found.get("accuracy"):
        low, high = (f"{100 * each:+.2f}" for each in accuracy["interval"])
        words.append(
            f"accuracy {100 * accuracy['before']:.2f} % → {100 * accuracy['after']:.2f} % on {accuracy['samples']}"
            f" samples (change {100 * accuracy['change']:+.2f} points, 95 % confidence {low} to {high})"
        )
    return " · ".join(words)


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
