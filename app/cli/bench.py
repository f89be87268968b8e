"""``pnnx-serve bench``: speed of a model, its kernels, and other engines on it, as text or a bar chart."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

import engine
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.cli.output import display_name, write_json, write_result
from app.cli.verbs import RIVALS
from app.measuring.contest import (
    ALLOWED_SHARE,
    ALLOWED_SHARE_OF_INT8,
    Array,
    Contest,
    RivalError,
    Times,
    fastest_kernels,
    load,
)
from app.measuring.contest import RIVALS as CONTESTANTS
from app.messages import printable
from app.models.model import Model
from app.models.sessions import open_session
from app.progress import compiling, progress, rounds
from app.render.caption import COLOURS
from app.render.formatting import count_text, counted, percent_text, shortened, time_text
from app.render.svg.markup import element, number, text
from app.render.table import aligned
from app.settings import Settings
from app.trials.sessions import random_inputs

KINDS: Final = (".svg", ".png")
_WIDTH, _MARGIN, _LABEL, _ROW, _SIZE = 860, 24, 260, 22, 12
_INK, _SOFT, _PAGE, _OURS_COLOUR = "#131820", "#535e6e", "#ffffff", COLOURS["conv"]
# Only the slowest kernels are drawn if there are more.
_MOST: Final = 40
# Pixels of a PNG per unit of the drawing.
_SCALE: Final = 2
_TITLES: Final = ("µs", "GFLOP/s", "of peak", "GB/s", "kernel", "operators")
_BAR, _BAR_LENGTH = "█", 16
_ENGINE_TITLES: Final = ("min", "median", "p99", "times ours", "error", "engine")
_PROFILES: Final = 10
_OURS: Final = "pnnx-serve"


@dataclass(frozen=True, slots=True)
class _Bar:
    label: str
    value: float
    note: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Word:
    x: float
    y: float
    content: str
    size: int
    colour: str
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float
    colour: str


def check_ending(path: str) -> None:
    """Raise for an unsupported file ending, before anything is measured.

    Raises:
        UsageError: the message names the supported endings.
    """
    if Path(path).suffix.lower() not in KINDS:
        raise UsageError(f"--plot: found {path}, expected a name that ends in {' or '.join(KINDS)}")


def plot(path: str, title: str, times: Mapping[str, Times], kernels: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the file in the format of its ending."""
    shapes = [*_shapes(title, times, kernels)]
    height = max(shape.y for shape in shapes) + _ROW
    return _png(shapes, height) if path.lower().endswith(".png") else _svg(shapes, height, title).encode()


def _shapes(title: str, times: Mapping[str, Times], kernels: Sequence[Mapping[str, Any]]) -> Iterator[_Word | _Box]:
    yield _Word(_MARGIN, _MARGIN + 14, title, 16, _INK)
    top = _MARGIN + 44.0
    engines = [
        _Bar(name, each.least_s, time_text(each.least_s * 1e6), COLOURS["io"] if at else _OURS_COLOUR)
        for at, (name, each) in enumerate(times.items())
    ]
    slowest = sorted(kernels, key=lambda each: -float(each["time_us"]))[:_MOST]
    total = sum(float(each["time_us"]) for each in kernels) or 1.0
    bars = [
        _Bar(
            f"{each['operators'][0]} · {each['kernel']}",
            float(each["time_us"]),
            f"{time_text(each['time_us'])} · {percent_text(each['time_us'] / total)}",
            COLOURS["linear"],
        )
        for each in slowest
    ]
    for heading, rows in (("Fastest run", engines), ("Kernels", bars)):
        if rows:
            yield _Word(_MARGIN, top, heading, 13, _SOFT)
            yield from _rows(rows, top + 10)
            top += 10 + _ROW * len(rows) + 34


def _rows(bars: Sequence[_Bar], top: float) -> Iterator[_Word | _Box]:
    most = max(bar.value for bar in bars) or 1.0
    room = _WIDTH - 2 * _MARGIN - _LABEL - 130
    for at, bar in enumerate(bars):
        y = top + _ROW * at
        width = max(1.0, room * bar.value / most)
        yield _Word(_MARGIN + _LABEL - 10, y + 15, shortened(bar.label, 40, 20), _SIZE, _INK, is_end=True)
        yield _Box(_MARGIN + _LABEL, y + 4, width, _ROW - 8, bar.colour)
        yield _Word(_MARGIN + _LABEL + width + 8, y + 15, bar.note, _SIZE, _SOFT)


def _svg(shapes: Sequence[_Word | _Box], height: float, title: str) -> str:
    drawn = [
        element("rect", x=shape.x, y=shape.y, width=shape.width, height=shape.height, rx=3, fill=shape.colour)
        if isinstance(shape, _Box)
        else element(
            "text", text(shape.content), x=float(shape.x), y=float(shape.y), fill=shape.colour, font_size=shape.size,
            text_anchor="end" if shape.is_end else None,
        )
        for shape in shapes
    ]  # fmt: skip
    return element(
        "svg",
        element("title", text(title)),
        element("rect", width="100%", height="100%", fill=_PAGE),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {number(height)}",
        width=_WIDTH,
        height=number(height),
        font_family="system-ui, sans-serif",
    )


def _png(shapes: Sequence[_Word | _Box], height: float) -> bytes:
    picture = Image.new("RGB", (_WIDTH * _SCALE, round(height) * _SCALE), _PAGE)
    pen = ImageDraw.Draw(picture)
    for shape in shapes:
        x, y = shape.x * _SCALE, shape.y * _SCALE
        if isinstance(shape, _Box):
            pen.rectangle((x, y, x + shape.width * _SCALE, y + shape.height * _SCALE), fill=shape.colour)
        else:
            font = ImageFont.load_default(shape.size * _SCALE)
            pen.text((x, y), _plain(shape.content), shape.colour, font, anchor="rs" if shape.is_end else "ls")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _plain(content: str) -> str:
    """Replace characters that Pillow's built-in font lacks."""
    return content.replace("µ", "u").encode("latin-1", "replace").decode("latin-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Result of ``bench``.

    Args:
        name, session: of the model.
        items: number of items in the batch.
        times, errors: by engine, ours first.
        kernels: kernels of one run with their times.
        peak: peak FLOP/s of one core, or None if it cannot be measured.
        has_bars: whether each kernel's time is also shown as a bar.
    """

    name: str
    session: engine.Session
    items: int
    times: Mapping[str, Times]
    errors: Mapping[str, float]
    kernels: Sequence[Mapping[str, Any]]
    peak: float | None
    has_bars: bool = False

    def text(self) -> str:
        """Return the report."""
        lines = [self._about(), "", *self._summary(), "", *self._kernels()]
        if len(self.times) > 1:
            lines += ["", *self._engines()]
        return "\n".join([*map(printable, lines), ""])

    def plain(self) -> dict[str, Any]:
        """Return the measurements as plain data."""
        return {
            "model": self.name,
            "items": self.items,
            "backend": self.session.backend,
            "threads": self._threads,
            "peak_flops_per_s": self.peak,
            "engines": {name: {**asdict(each), "error": self.errors[name]} for name, each in self.times.items()},
            "kernels": [dict(each) for each in self.kernels],
        }

    @property
    def _threads(self) -> int:
        return self.session.threads or 1

    @property
    def _own_engine(self) -> str:
        return next(iter(self.times))

    def _about(self) -> str:
        parts = [self.name, counted(self.items, "item"), f"{self.session.backend} back end"]
        error = self.errors[self._own_engine]
        return " · ".join([*parts, counted(self._threads, "thread"), f"within {error:.0e} of the reference"])

    def _summary(self) -> list[str]:
        """Return a line each for latency, throughput and arithmetic."""
        times = self.times[self._own_engine]
        figures = ("min", times.least_s), ("median", times.median_s), ("p99", times.p99_s)
        shown = " · ".join(f"{name} {time_text(seconds * 1e6)}" for name, seconds in figures)
        throughput = self.items / times.median_s
        per_second = f"{throughput:,.0f}" if throughput >= 1000 else f"{throughput:.3g}"
        lines = [f"latency     {shown} · {times.runs} runs", f"throughput  {per_second} items/s"]
        flops = sum(each.get("flops", 0) for each in self.kernels)
        if flops:
            rate = flops / times.least_s
            lines.append(f"arithmetic  {count_text(flops, 'FLOP')} · {count_text(rate, 'FLOP/s')}{self._of_peak(rate)}")
        return lines

    def _of_peak(self, rate: float) -> str:
        if self.peak is None:
            return ""
        cores = "one core" if self._threads == 1 else f"{self._threads} cores"
        return f" · {self._share(rate)} of the float32 peak of {cores} ({count_text(self.peak, 'FLOP/s')} each)"

    def _share(self, rate: float) -> str:
        return "" if self.peak is None else percent_text(rate / (self.peak * self._threads))

    def _kernels(self) -> list[str]:
        """Return a row for each kernel in order of execution, and one for the total."""
        total_us = sum(each["time_us"] for each in self.kernels)
        total = (f"{total_us:.1f}", "", "", "", "", f"in {counted(len(self.kernels), 'kernel')}")
        rows = [_TITLES, *map(self._kernel, self.kernels), total]
        if self.has_bars:
            most = max((each["time_us"] for each in self.kernels), default=0.0) or 1.0
            bars = [_BAR * round(_BAR_LENGTH * each["time_us"] / most) for each in self.kernels]
            rows = [(row[0], bar, *row[1:]) for row, bar in zip(rows, ("time", *bars, ""), strict=True)]
        return aligned(rows, _TITLES[:-2])

    def _kernel(self, each: Mapping[str, Any]) -> tuple[str, ...]:
        time_us, flops, moved = each["time_us"], each.get("flops", 0), each.get("bytes", 0)
        rate = flops / time_us * 1e6 if time_us else 0.0
        return (
            f"{time_us:.1f}",
            f"{rate / 1e9:.1f}" if rate else "",
            self._share(rate) if rate else "",
            f"{moved / time_us / 1e3:.1f}" if moved and time_us else "",
            each["kernel"],
            ", ".join(each["operators"]),
        )

    def _engines(self) -> list[str]:
        """Return a row for each engine, ours first."""
        best = self.times[self._own_engine].least_s
        rows = [
            (
                *(time_text(seconds * 1e6) for seconds in (each.least_s, each.median_s, each.p99_s)),
                f"{each.least_s / best:.2f}",
                f"{self.errors[name]:.0e}",
                name,
            )
            for name, each in self.times.items()
        ]
        return aligned([_ENGINE_TITLES, *rows], _ENGINE_TITLES[:-1])


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Check, measure and report; return 1 if a requested engine cannot take part."""
    names = _rivals(args)
    found, version, model = models.load(args.model, settings)
    specs = models.needed_specs(model, args.shape)
    with compiling(found.name) as show:
        model.compile(args.batch, specs=specs, progress=show)
    inputs = random_inputs(specs, args.batch)
    with progress(f"checking {found.name}"):
        contest = _contest(model, inputs, settings)
    for name in names:
        _challenge(name, version.param, args, contest, model, inputs)
    with rounds(f"measuring {found.name}") as tell:
        times = contest.measure(args.seconds, tell)
    with progress(f"profiling {found.name}"):
        kernels, peak = _kernels(model, inputs), _peak()
    report = Bench(
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
    except RivalError as exc:
        raise engine.ExecutionError(f"the model's outputs differ from the reference's: {exc}") from exc
    return contest


def _reference(model: Model, settings: Settings) -> engine.Session:
    return open_session(model.session.graph, settings.model_copy(update={"backend": "reference"}), None)


def _challenge(
    name: str, param: Path, args: argparse.Namespace, contest: Contest, model: Model, inputs: list[Array]
) -> None:
    """Add another engine to the contest, or print why it cannot take part."""
    try:
        with progress(f"loading {name}"):
            given = {"onnx": args.onnx, "ncnn": args.ncnn}
            title, run = load(name, param, given, _threads(model), inputs)
            allowed = ALLOWED_SHARE_OF_INT8 if CONTESTANTS[name].is_quantised else ALLOWED_SHARE
            contest.enter(title, run, allowed)
    except RivalError as exc:
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
