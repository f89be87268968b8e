"""Ways to export a model: as it was asked for, and others that may work where that does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import engine
from app.models.folder.layout import BIN, PARAM
from exporter.conversion import ONNX, SCRIPT, convert
from exporter.drawing import PLAIN, draw
from exporter.errors import ConversionError, DivergenceError, ExportError, SourceError
from exporter.inputs import InputSpec
from exporter.onnx_export import missing_packages, open_dimensions, write_onnx
from exporter.onnx_model import OnnxModel
from exporter.remedy import Way
from exporter.tensors import answer
from exporter.verification import Case, cases, verify

_LEVELS: Final = (2, 1, 0)
# Sizes that are opened one after another, to find one that helps.
_MOST_OPENED: Final = 3


@dataclass(frozen=True, slots=True)
class Ways:
    """What an export was asked for, and the ways to have the model otherwise.

    Args:
        model: in evaluation mode.
        inputs, second: the shapes; no second ones where all sizes are fixed.
        trials: what an export is held against.
        scratch: a folder for what is tried.
        level: of simplification.
        module_operators: classes that stay one operator each.
        rtol: the allowed error.
    """

    model: Any
    inputs: Sequence[InputSpec]
    second: Sequence[InputSpec]
    trials: Sequence[Case]
    scratch: Path
    level: int
    module_operators: Sequence[str]
    rtol: float | None

    @property
    def script(self) -> Path:
        """The file that the converter reads."""
        return self.scratch / (ONNX if isinstance(self.model, OnnxModel) else SCRIPT)

    def convert(self, folder: Path, level: int, second: Sequence[InputSpec]) -> None:
        """Have the converter write a pair."""
        convert(self.script, folder, self.inputs, second, opt_level=level, module_operators=self.module_operators)

    def __iter__(self) -> Iterator[Way]:
        """The other ways, those first that need the least of whoever exports."""
        others = sorted(_LEVELS, key=lambda level: (level > self.level, -level)) if self.script.exists() else ()
        for level in others:
            if level != self.level:
                attempt = partial(self._as_pair, level, self.second, self.trials)
                yield Way(name=f"with --opt-level {level}", attempt=attempt)
        if isinstance(self.model, OnnxModel):
            yield Way(name="as the ONNX file itself, without --shape", attempt=self._as_it_is)
        elif not self.module_operators:
            missing = missing_packages()
            name = f"through ONNX (not tried: {' and '.join(missing)} missing)" if missing else "through ONNX"
            yield Way(name=name, attempt=self._through_onnx)
        if not others:
            return
        if self.second:
            fixed = [case for case in self.trials if case.inputs == tuple(self.inputs)]
            attempt = partial(self._as_pair, self.level, (), fixed)
            yield Way(name="with fixed sizes, without --shape2", attempt=attempt)
        else:
            yield Way(name="with open sizes", attempt=self._with_open_sizes)

    def _as_pair(self, level: int, second: Sequence[InputSpec], trials: Sequence[Case]) -> str:
        folder = self.scratch / "other"
        self.convert(folder, level, second)
        self._verify(load(folder), trials)
        return ""

    def _with_open_sizes(self) -> str:
        for second in islice(self._open_shapes(), _MOST_OPENED):
            try:
                self._as_pair(self.level, second, cases(self.model, self.inputs, second))
            except engine.EngineError:
                continue
            return "".join(f" --shape2 {spec}" for spec in second)
        raise DivergenceError("no size can be opened")

    def _open_shapes(self) -> Iterator[tuple[InputSpec, ...]]:
        """Second shapes: one of the sizes above 1 is larger by one wherever it occurs, if the model takes that."""
        for size in dict.fromkeys(size for spec in self.inputs for size in spec.shape if size > 1):
            shapes = tuple(replace(spec, shape=tuple(n + (n == size) for n in spec.shape)) for spec in self.inputs)
            try:
                answer(self.model, draw(PLAIN, shapes, (None,) * len(shapes), 0))
            except SourceError:
                continue
            yield shapes

    def _through_onnx(self) -> str:
        if missing_packages():
            raise ExportError("torch.onnx.export cannot be tried")
        dims = open_dimensions(self.inputs, self.second)
        # A size of 1 would be taken for a constant.
        case = next((each for each in self.trials if _is_above_one(each.inputs, dims)), self.trials[0])
        path = self.scratch / "exported.onnx"
        for dynamo in (True, False):
            try:
                write_onnx(self.model, case.tensors(), dims, path, dynamo=dynamo)
                self._verify(engine.load(path), self.trials)
            except engine.EngineError:
                continue
            opened = f" and open dimensions {dims}" if any(dims) else ""
            return f": torch.onnx.export with dynamo={dynamo}, inputs of {case.shapes}{opened}"
        raise DivergenceError("no answers that agree through ONNX")

    def _as_it_is(self) -> str:
        self._verify(engine.load(self.model.path), self.trials)
        return ""

    def _verify(self, graph: engine.RuntimeGraph, trials: Sequence[Case]) -> None:
        list(verify(self.model, graph, trials, self.rtol))


def load(folder: Path) -> engine.RuntimeGraph:
    """Load a written pair; a converter that crashed half-way may have left half of one."""
    try:
        return engine.load(folder / PARAM, folder / BIN)
    except engine.ModelFormatError as error:
        raise ConversionError("pnnx wrote a pair that cannot be read", found=error) from error


def _is_above_one(inputs: Sequence[InputSpec], dims: Sequence[Sequence[int]]) -> bool:
    return all(spec.shape[dim] > 1 for spec, each in zip(inputs, dims, strict=True) for dim in each)
