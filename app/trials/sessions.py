"""Candidate settings of a model, sessions for them on the served graph, and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

import engine
from app.errors import InvalidRequestError
from app.memory.reservation import charged
from app.models.folder.config import Precision
from app.models.model import Model
from app.models.sessions import open_session
from app.schema import Section
from app.settings import Settings

# Limits of one experiment.
MAX_CANDIDATES: Final = 48
MAX_BATCH: Final = 64
# Value of `passes_off` that disables all passes.
ALL: Final = "all"

Count = Annotated[int, Field(ge=1, le=MAX_BATCH, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Options of a session, shared by all batch sizes.

    Args:
        passes_off: disabled graph passes, in order.
    """

    backend: Literal["compiled", "reference"] = "compiled"
    threads: int = 1
    winograd: Literal["auto", "off"] = "auto"
    passes_off: tuple[str, ...] = ()
    precision: Precision = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Session options and batch size."""

    build: Build
    batch: int = 1

    def describe(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self.build), "passes_off": list(self.build.passes_off), "batch": self.batch}


class Grid(Section):
    """Grid of settings; every combination is a candidate."""

    backend: Annotated[tuple[Literal["compiled", "reference"], ...], Field(min_length=1, max_length=2)] = Field(
        default=("compiled",), description="What runs it. On the reference only the batch makes a difference."
    )
    threads: (
        Annotated[tuple[Annotated[int, Field(ge=1, strict=True)], ...], Field(min_length=1, max_length=32)] | None
    ) = Field(default=None, description="Cores of one run; default: 1, 2, 4 and so on up to all the server may use.")
    batch: Annotated[tuple[Count, ...], Field(min_length=1, max_length=16)] = Field(
        default=(1,), description="Items of one run."
    )
    winograd: Annotated[tuple[Literal["auto", "off"], ...], Field(min_length=1, max_length=2)] = Field(
        default=("auto",), description="off: convolutions are summed directly."
    )
    passes_off: Annotated[
        tuple[Annotated[tuple[str, ...], Field(max_length=32)], ...], Field(min_length=1, max_length=16)
    ] = Field(default=((),), description="Lists of graph optimisations to leave out; all: of all of them.")
    precision: Annotated[tuple[Precision, ...], Field(min_length=1, max_length=3)] = Field(
        default=("float32",), description="Of products: float32, bf16 or auto, as in config.toml."
    )
    seconds: Annotated[float, Field(gt=0, le=30, allow_inf_nan=False)] = Field(
        default=1.0, description="Time for the runs of each candidate."
    )
    sample: str | None = Field(default=None, description="One of the model's samples; random values without it.")

    @model_validator(mode="after")
    def _check_passes(self) -> Self:
        known = (ALL, *engine.PASS_NAMES)
        for name in (name for names in self.passes_off for name in names):
            if name not in known:
                raise ValueError(f"passes_off: found '{name[:40]}', expected some of {', '.join(known)}")
        return self

    def candidates(self, threads: int) -> list[Candidate]:
        """Return all candidates in order, without duplicates.

        Args:
            threads: number of threads that the server may use.

        Raises:
            ValueError: too many threads or candidates.
        """
        wanted = self.threads or usual_threads(threads)
        if max(wanted) > threads:
            raise ValueError(f"threads: found {max(wanted)}, expected at most the {threads} this server may use")
        found = dict.fromkeys(self._every(wanted))
        if len(found) > MAX_CANDIDATES:
            raise ValueError(f"found {len(found)} candidates, expected at most {MAX_CANDIDATES}")
        return list(found)

    def _every(self, threads: tuple[int, ...]) -> Iterator[Candidate]:
        axes = (
            self.backend, threads, self.winograd, map(_spelt_out, self.passes_off), self.precision, self.batch
        )  # fmt: skip
        for backend, count, winograd, passes_off, precision, batch in product(*axes):
            build = Build(backend=backend, threads=count, winograd=winograd, passes_off=passes_off, precision=precision)
            if backend == "reference":  # the numpy layers have no such options
                build = Build(backend=backend, threads=max(threads))
            yield Candidate(build=build, batch=batch)


def usual_threads(threads: int) -> tuple[int, ...]:
    """Return 1, 2, 4 and so on up to all threads."""
    return tuple(sorted({*(1 << power for power in range(threads.bit_length())), threads}))


def as_served(session: engine.Session, threads: int) -> Candidate:
    """Return the candidate that corresponds to the served session."""
    options = session.options
    build = Build(threads=session.threads or threads, winograd=options.winograd, precision=options.precision)
    build = replace(build, passes_off=_spelt_out(options.passes_off))
    if session.backend == "reference":
        build = Build(backend="reference", threads=threads)
    return Candidate(build=build)


def _spelt_out(names: Mapping[str, object] | tuple[str, ...] | frozenset[str]) -> tuple[str, ...]:
    return tuple(each for each in engine.PASS_NAMES if ALL in names or each in names)


# Packed weights and code take memory beside the weights of the file.
_TIMES: Final = 2


class Sessions:
    """Sessions of one experiment; their memory is charged to its request.

    Args:
        settings: settings of the server.
        cancelled: polled while compiling.
    """

    def __init__(self, settings: Settings, cancelled: Callable[[], bool]) -> None:
        self._settings = settings
        self._cancelled = cancelled
        self._stack = ExitStack()
        self._open: dict[tuple[int, Build], engine.Session] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        self._open.clear()

    def get(self, graph: engine.RuntimeGraph, build: Build) -> engine.Session:
        """Return the session of a build, opened on first use.

        Raises:
            ServiceError: there is not enough memory.
        """
        key = (id(graph), build)
        if key not in self._open:
            self._stack.enter_context(charged(_TIMES * weights_bytes(graph)))
            self._open[key] = session = open_build(graph, build, self._settings)
            self._stack.callback(session.close)
        return self._open[key]

    def make_ready(
        self,
        session: engine.Session,
        build: Build,
        inputs: Sequence[NDArray[Any]],
        progress: engine.Progress | None = None,
    ) -> None:
        """Compile for these inputs; a session that is compiled already is left alone.

        Raises:
            ServiceError: there is not enough memory for its runs.
            EngineError: it cannot be compiled, or the graph rejects the inputs.
        """
        self._stack.enter_context(charged(session.estimate_bytes(inputs) + sum(each.nbytes for each in inputs)))
        specs = [engine.TensorSpec(each.shape, each.dtype) for each in inputs]
        session.prepare(specs=specs, progress=progress, cancelled=self._cancelled)


def open_build(graph: engine.RuntimeGraph, build: Build, settings: Settings) -> engine.Session:
    """Return a session of a build."""
    options = {"backend": build.backend, "winograd": build.winograd, "passes_off": build.passes_off}
    return open_session(graph, settings.model_copy(update=options), build.threads, build.precision)


def weights_bytes(graph: engine.RuntimeGraph) -> int:
    """Return the bytes of the weights in the file."""
    return sum(each.data.nbytes for op in graph.operators for each in op.attributes.values())


def random_inputs(specs: Sequence[engine.TensorSpec], batch: int | None = None) -> list[NDArray[Any]]:
    """Return random inputs of the specs or of another batch size, the same on each call."""
    random = np.random.default_rng(0)
    found = []
    for each in specs:
        shape = tuple(dim or 1 for dim in each.shape)
        shape = shape if batch is None or not shape else (batch, *shape[1:])
        # 0 and 1 are valid as indices, masks and counts
        values = random.standard_normal(shape) if each.dtype.kind in "fc" else random.integers(0, 2, shape)
        found.append(np.asarray(values).astype(each.dtype))
    return found


def example(model: Model) -> list[NDArray[Any]]:
    """Return one item of random values.

    Raises:
        InvalidRequestError: the model has dynamic sizes.
    """
    zeros = model.example_inputs()
    if zeros is None:
        raise InvalidRequestError(f"{model.missing_example}, so there is nothing to run it on; send an input")
    return random_inputs([engine.TensorSpec(each.shape, each.dtype) for each in zeros.values()])


def repeated(inputs: Sequence[NDArray[Any]], batch: int) -> list[NDArray[Any]]:
    """Return the item repeated to a batch."""
    return [np.concatenate([each[:1]] * batch) if each.ndim else each for each in inputs]
