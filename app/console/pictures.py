"""Static SVG pictures of a run: timeline by thread, and memory plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.render.family import COLOURS
from app.render.formatting import count_text, percent_text, shape_text, text_width, time_text
from app.render.svg.markup import element, number, text

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
        title = element("title", text(_about(each, rows, operands)))
        colour = COLOURS[each["family"]] if each["operands"] else COLOURS["constant"]
        parts.append(_rect(x, y, max(0.5, width - 1), max(0.5, each["bytes"] * up - 0.5), title, fill=colour))
    y = _HEIGHT - _BOTTOM - max(alive) * up
    parts.append(element("path", d=f"M{_LEFT} {number(y)}H{_WIDTH}", class_="peak"))
    label = f"peak {count_text(max(alive), 'B')}, at {rows[alive.index(max(alive))]['operators'][0]}"
    parts.append(element("text", text(label), x=_WIDTH, y=y - 5, text_anchor="end", class_="label"))
    parts.append(element("text", text(f"{len(rows)} kernels in execution order"), x=_LEFT, y=_HEIGHT - 6))
    return _picture(_HEIGHT, parts)


def _about(
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
