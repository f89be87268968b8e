"""Alternatives for the export of a model: each is tried before a message names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import engine
from app.models.folder.layout import BIN, PARAM
from exporter.conversion import ONNX, SCRIPT, convert
from exporter.drawing import PLAIN, draw
from exporter.errors import ConversionError, DivergenceError, ExportError, SourceError
from exporter.inputs import InputSpec
from exporter.onnx_files import OnnxModel, dynamic_dimensions, missing_packages, write_onnx
from exporter.tensors import answer
from exporter.verification import Case, cases, verify

E = TypeVar("E", bound=engine.EngineError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Alternative way to export a model.

    Args:
        name: as in "with --opt-level 1".
        attempt: exports the model that way, checks the result and returns an addition to the name; raises
            EngineError on failure.
    """

    name: str
    attempt: Callable[[], str]


def unfit(error: engine.EngineError) -> engine.EngineError:
    """Return the error for a pair that cannot be built; it blames the converter if operators do not fit."""
    if isinstance(error, (engine.ParameterError, engine.ShapeError, engine.GraphError)):
        return ConversionError(f"pnnx wrote a pair that cannot be run: {error}")
    return error


def with_alternative(error: E, alternatives: Iterable[Alternative]) -> E:
    """Add the first alternative that works to an error, or all that were tried."""
    tried = []
    for alternative in alternatives:
        tried.append(alternative.name)
        try:
            detail = alternative.attempt()
        except engine.EngineError:
            continue
        return _with(error, f"the answers agree {alternative.name}{detail}")
    return _with(error, f"nor do they agree {_listed(tried)}") if tried else error


def _listed(names: Sequence[str]) -> str:
    """Return names as a list: "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _with(error: E, remark: str) -> E:
    error.remark = f"{error.remark}; {remark}" if error.remark else remark
    return error


_LEVELS: Final = (2, 1, 0)
# Most sizes that are made dynamic one by one, to find one that helps.
_MOST_DYNAMIC: Final = 3


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Requested export of a model, and its alternatives.

    Args:
        model: in evaluation mode.
        inputs, second: the shapes; no second ones if all sizes are fixed.
        trials: cases that an export is compared at.
        scratch: a folder for trial exports.
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
        """Write a pair by the converter."""
        convert(self.script, folder, self.inputs, second, opt_level=level, module_operators=self.module_operators)

    def __iter__(self) -> Iterator[Alternative]:
        """Yield the alternatives, those with the least effort for the user first."""
        others = sorted(_LEVELS, key=lambda level: (level > self.level, -level)) if self.script.exists() else ()
        for level in others:
            if level != self.level:
                attempt = partial(self._as_pair, level, self.second, self.trials)
                yield Alternative(name=f"with --opt-level {level}", attempt=attempt)
        if isinstance(self.model, OnnxModel):
            yield Alternative(name="as the ONNX file itself, without --shape", attempt=self._as_it_is)
        elif not self.module_operators:
            missing = missing_packages()
            name = f"through ONNX (not tried: {' and '.join(missing)} missing)" if missing else "through ONNX"
            yield Alternative(name=name, attempt=self._through_onnx)
        if not others:
            return
        if self.second:
            fixed = [case for case in self.trials if case.inputs == tuple(self.inputs)]
            attempt = partial(self._as_pair, self.level, (), fixed)
            yield Alternative(name="with fixed sizes, without --shape2", attempt=attempt)
        else:
            yield Alternative(name="with dynamic sizes", attempt=self._with_dynamic_sizes)

    def _as_pair(self, level: int, second: Sequence[InputSpec], trials: Sequence[Case]) -> str:
        folder = self.scratch / "other"
        self.convert(folder, level, second)
        self._verify(load(folder), trials)
        return ""

    def _with_dynamic_sizes(self) -> str:
        for second in islice(self._open_shapes(), _MOST_DYNAMIC):
            try:
                self._as_pair(self.level, second, cases(self.model, self.inputs, second))
            except engine.EngineError:
                continue
            return "".join(f" --shape2 {spec}" for spec in second)
        raise DivergenceError("no size can be dynamic")

    def _open_shapes(self) -> Iterator[tuple[InputSpec, ...]]:
        """Yield second shapes in which all equal sizes above 1 are larger by one, if the model accepts them."""
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
        dims = dynamic_dimensions(self.inputs, self.second)
        # A size of 1 would become a constant.
        case = next((each for each in self.trials if _is_above_one(each.inputs, dims)), self.trials[0])
        path = self.scratch / "exported.onnx"
        for dynamo in (True, False):
            try:
                write_onnx(self.model, case.tensors(), dims, path, dynamo=dynamo)
                self._verify(engine.load(path), self.trials)
            except engine.EngineError:
                continue
            sizes = f" and dynamic dimensions {dims}" if any(dims) else ""
            return f": torch.onnx.export with dynamo={dynamo}, inputs of {case.shapes}{sizes}"
        raise DivergenceError("the results through ONNX do not agree")

    def _as_it_is(self) -> str:
        self._verify(engine.load(self.model.path), self.trials)
        return ""

    def _verify(self, graph: engine.RuntimeGraph, trials: Sequence[Case]) -> None:
        list(verify(self.model, graph, trials, self.rtol))


def load(folder: Path) -> engine.RuntimeGraph:
    """Load a written pair; a converter that crashed may have left half of one."""
    try:
        return engine.load(folder / PARAM, folder / BIN)
    except engine.ModelFormatError as error:
        raise ConversionError("pnnx wrote an unreadable pair", found=error) from error


def _is_above_one(inputs: Sequence[InputSpec], dims: Sequence[Sequence[int]]) -> bool:
    return all(spec.shape[dim] > 1 for spec, each in zip(inputs, dims, strict=True) for dim in each)
