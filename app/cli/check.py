"""``pnnx-serve check``: report every reason why a model cannot be served."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import engine
from app.arrays import blank
from app.cli.arguments.models import find, prepare
from app.cli.arguments.pipelines import LocalParts
from app.cli.output import write_json
from app.errors import ConfigError, ServiceError
from app.messages import printable, quoted
from app.models.folder.repository import ModelFiles, VersionFiles, waits_for_files
from app.models.model import Model
from app.models.request import InferRequest
from app.models.sessions import read_graph
from app.pipelines.nesting import check_nesting
from app.progress import progress
from app.settings import Settings

# Multiples that networks usually divide by first, then rarer ones.
_SIZES: Final = (64, 32, 128, 16, 224, 256, 96, 8, 7, 4, 2, 1, 3, 5, 10, 12, 100, 20, 50, 24, 48)
_BATCHES: Final = (1, 2)
# Dynamic sizes of one model may have to differ: number of other combinations to try, and of runs in all.
_MIXTURES: Final = 400
_RUNS: Final = 12


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Check the models and return 1 if one of them cannot be served."""
    found: list[Remark] = []
    for name in args.model:
        with progress(f"checking {name}"):
            remarks = inspect(name, settings)
        found += remarks
        if not args.json:
            sys.stdout.write("".join(f"{remark}\n" for remark in remarks))
    if args.json:
        write_json([{"model": each.place, "state": each.state, "problem": each.problem} for each in found])
    return int(any(remark.is_error for remark in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Line about a model; ``problem`` is None if all is well."""

    place: str
    problem: str | None = None
    is_error: bool = False

    @property
    def state(self) -> str:
        """Return ``ok``, ``warning`` or ``error``."""
        return "ok" if self.problem is None else "error" if self.is_error else "warning"

    def __str__(self) -> str:
        return printable(f"{self.place}: {self.state}" + ("" if self.problem is None else f": {self.problem}"))


def inspect(model: str, settings: Settings) -> list[Remark]:
    """Return all remarks on a model; it can be served if none of them is an error."""
    try:
        files = find(model, settings)
    except (ServiceError, ConfigError) as exc:
        return [Remark(place=model, problem=str(exc), is_error=True)]
    if files.problem is not None:
        return [Remark(place=model, problem=files.problem, is_error=True)]
    if files.pipeline is not None:
        return _pipeline(model, files, settings)
    many = len(files.versions) > 1
    return [
        remark
        for version in files.versions
        for remark in _version(f"{model} version {version.number}" if many else model, files, version, settings)
    ]


def _pipeline(place: str, files: ModelFiles, settings: Settings) -> list[Remark]:
    """Check the models of the steps, and then whether the steps fit each other."""
    assert files.pipeline is not None
    parts = LocalParts(files.store or files.folder, settings)
    try:
        check_nesting(files.name, files.pipeline, parts)
        inner = [remark for name in files.pipeline.models for remark in inspect(name, settings)]
        remarks = [replace(each, place=f"{place}: {each.place}") for each in inner if each.problem is not None]
        if not any(remark.is_error for remark in remarks):
            parts.open(files, files.versions[0])
    except (engine.EngineError, ConfigError, ServiceError) as exc:
        return [Remark(place=place, problem=str(exc), is_error=True)]
    return remarks if any(remark.is_error for remark in remarks) else [*remarks, Remark(place=place)]


def _version(place: str, files: ModelFiles, version: VersionFiles, settings: Settings) -> list[Remark]:
    if (found := waits_for_files(version)) is not None:
        return [Remark(place=place, problem=found, is_error=True)]
    strict = files.config.is_strict(settings.strict)
    remarks = [
        Remark(place=place, problem=str(problem), is_error=isinstance(problem, engine.EngineError))
        for problem in engine.check(version.param, version.bin, strict=strict)
    ]
    if not any(remark.is_error for remark in remarks):
        remarks += _trial(place, files, version, settings)
    return remarks if any(remark.is_error for remark in remarks) else [*remarks, Remark(place=place)]


def _gaps(place: str, bundle: Mapping[str, Any] | None) -> Iterator[Remark]:
    """Warn about shapes that a bundle runs on the reference here."""
    if bundle is not None and "why" in bundle:
        programs = "; ".join(" and ".join(map(str, shapes)) for shapes in bundle["programs"])
        yield Remark(place=place, problem=f"other shapes than {programs} run on the reference: {bundle['why']}")


def _trial(place: str, files: ModelFiles, version: VersionFiles, settings: Settings) -> Iterator[Remark]:
    """Load the model as the server does and run it once on zeros; assume sizes for dynamic dimensions."""
    try:
        model = prepare(files, version, read_graph(version, settings), settings)
        dry_run(model)
        yield from _gaps(place, model.session.describe().get("bundle"))
    except NotRunError as exc:
        yield Remark(place=place, problem=str(exc))
    except (engine.EngineError, ConfigError, ServiceError) as exc:
        yield Remark(place=place, problem=str(exc), is_error=True)


class NotRunError(Exception):
    """Dry run without a verdict, because no valid inputs are known."""


def dry_run(model: Model) -> None:
    """Run a model once, as a server would.

    Raises:
        EngineError, ConfigError: it does not run.
        NotRunError: there are no inputs, or it rejects zeros at every size tried.
    """
    if model.warm_up():
        return
    known = [port.spec for port in model.signature.inputs]
    specs = [spec for spec in known if spec is not None]
    if len(specs) < len(known):
        unknown = [port.name for port in model.signature.inputs if port.spec is None]
        raise NotRunError(f"not run: the file does not declare {quoted(unknown)}")
    problem = model.remark if all(spec.is_static for spec in specs) else _try_sizes(model, model.partly_known(specs))
    if problem is not None:
        raise NotRunError(problem)


def _try_sizes(model: Model, specs: Sequence[engine.TensorSpec]) -> str | None:
    """Return the reason why the model rejects zeros of every size tried, or None if one runs."""
    failure: engine.EngineError | None = None
    tried: list[str] = []
    for candidate in _candidates(specs):
        error = _refusal(model, candidate)
        if error is None:
            error = _run(model, candidate)
            tried.append(" and ".join(str(list(spec.shape)) for spec in candidate))
        if error is None:
            return None
        failure = failure or error
        if len(tried) >= _RUNS:
            break
    shapes = f": {'; '.join(tried[:3])}" if tried else ""
    return f"not run: sizes are dynamic, and zeros are rejected at all sizes tried{shapes}: {failure}"


def _refusal(model: Model, specs: Sequence[engine.TensorSpec]) -> engine.EngineError | None:
    """Return the error of shape inference for these sizes, or None."""
    try:
        model.session.graph.infer(specs)
    except engine.EngineError as error:
        return error
    return None


def _run(model: Model, specs: Sequence[engine.TensorSpec]) -> engine.EngineError | None:
    ports = model.signature.inputs
    inputs = {port.name: blank(spec.sizes, spec.dtype) for port, spec in zip(ports, specs, strict=True)}
    try:
        with model.in_bounds():
            model.session.prepare(specs=specs)
            model.infer(InferRequest(decode=lambda _: dict(inputs), parameters={}))
    except engine.EngineError as error:
        return error
    return None


def _candidates(specs: Sequence[engine.TensorSpec]) -> Iterator[list[engine.TensorSpec]]:
    """Yield sizes for all dynamic dimensions: equal ones, then combinations."""
    for size, batch in itertools.product(_SIZES, _BATCHES):
        yield [_sized(spec, itertools.chain([batch], itertools.repeat(size))) for spec in specs]
    choose = random.Random(0)
    for _ in range(_MIXTURES):
        batch = choose.choice(_BATCHES)
        few = choose.sample(_SIZES, 3)
        yield [_sized(spec, itertools.chain([batch], iter(lambda: choose.choice(few), None))) for spec in specs]  # noqa: B023


def _sized(spec: engine.TensorSpec, sizes: Iterator[int]) -> engine.TensorSpec:
    """Return a spec with dynamic dimensions replaced, the first by the first size."""
    shape = tuple(size if dim is None else dim for dim, size in zip(spec.shape, sizes, strict=False))
    return engine.TensorSpec(shape, spec.dtype)
