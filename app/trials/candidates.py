"""Candidate settings of a model, and the grid that generates them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

import engine
from app.schema import Section

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
        axes = (self.backend, threads, self.winograd, map(_spelt_out, self.passes_off), self.batch)
        for backend, count, winograd, passes_off, batch in product(*axes):
            build = Build(backend=backend, threads=count, winograd=winograd, passes_off=passes_off)
            if backend == "reference":  # the numpy layers have no such options
                build = Build(backend=backend, threads=max(threads))
            yield Candidate(build=build, batch=batch)


def usual_threads(threads: int) -> tuple[int, ...]:
    """Return 1, 2, 4 and so on up to all threads."""
    return tuple(sorted({*(1 << power for power in range(threads.bit_length())), threads}))


def as_served(session: engine.Session, threads: int) -> Candidate:
    """Return the candidate that corresponds to the served session."""
    options = session.options
    build = Build(threads=session.threads or threads, winograd=options.winograd)
    build = replace(build, passes_off=_spelt_out(options.passes_off))
    if session.backend == "reference":
        build = Build(backend="reference", threads=threads)
    return Candidate(build=build)


def _spelt_out(names: Mapping[str, object] | tuple[str, ...] | frozenset[str]) -> tuple[str, ...]:
    return tuple(each for each in engine.PASS_NAMES if ALL in names or each in names)
