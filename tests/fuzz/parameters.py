"""Parameters of operators, one at a time, put to values that no model has.

Every recorded sample is a graph whose answer is known. A case is one of its parameters, or one number of an
expression, replaced; the graph is built and run. It must give a result or an EngineError, soon, in little memory.

    python -m tests.fuzz.parameters --seconds 600 --seed 1
    python -m tests.fuzz.parameters --only torch.as_strided
    python -m tests.fuzz.parameters --backend compiled --show "ExecutionError for"

With ``--backend compiled`` every case runs on both, and machine code may neither answer where the reference refuses,
nor differently.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import engine
from engine import pnnx
from engine.pnnx.param import parse_param
from tests.engine.layers.samples import Sample, all_samples
from tests.fuzz.agreement import by_both
from tests.fuzz.child import Result, run

FRONT_END: Final = "tests.fuzz.parameters:attempt"
FRONT_ENDS: Final = {"reference": FRONT_END, "compiled": f"{FRONT_END}_compiled"}

NUMBERS: Final = (
    0, 1, -1, 2, 7, 10**6, -(10**6), 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30,
    0.5, -0.5, 1e308, -1e308, 1e-308, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
OTHERS: Final = (None, True, False, "x", "")
_LONG: Final = ((), (1,) * 65, (2,) * 40, (1,) * 60_000, (0,) * 10**6)
_LARGE: Final = 1 << 25
_MUCH: Final = 1 << 28
IN_EXPRESSIONS: Final = ("0", "-1", "1000000", "2147483647", "-2147483648", "4294967296", "9223372036854775807",
                         "-9223372036854775808", "1e308", "0.5")  # fmt: skip
_NUMBER: Final = re.compile(r"(?<![@\w.])-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?")


def values(original: Any) -> list[Any]:
    """Yield replacements of a parameter: numbers, other kinds, lists of the right length, of others, of a million."""
    length = len(original) if isinstance(original, (tuple, list)) else 2
    items = list(original) if isinstance(original, (tuple, list)) else [original] * length
    lists: list[tuple[Any, ...]] = [(number,) * length for number in NUMBERS]
    if len(set(items)) > 1 or length > 1:  # one item alone: what a check of all of them together might miss
        lists += [(*items[:-1], number) for number in NUMBERS] + [(number, *items[1:]) for number in NUMBERS]
    return [*NUMBERS, *OTHERS, *lists, (None,) * length, ("x",) * length, *_LONG]


def expressions(text: str) -> list[str]:
    """An expression with each of its numbers replaced."""
    places = list(_NUMBER.finditer(text))
    return [text[: at.start()] + number + text[at.end() :] for at in places for number in IN_EXPRESSIONS]


def mutants(key: str, original: Any) -> list[Any]:
    """Yield replacements of a parameter of this name."""
    return expressions(str(original)) if key == "expr" else values(original)


def cases(samples: Sequence[Sample], only: str = "") -> Iterator[list[Any]]:
    """Each operator of each sample, each parameter, each value: [sample, operator, parameter, which of its values]."""
    for sample in samples:
        for op in _graph_of(sample.id).operators:
            if only and op.type != only:
                continue
            for key, original in op.params.items():
                yield from ([sample.id, op.name, key, which] for which in range(len(mutants(key, original))))


def first_of_each(samples: Sequence[Sample]) -> list[Sample]:
    """Samples until every operator type with every set of parameters was there once."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for sample in samples:
        kinds = {(op.type, *op.params) for op in _graph_of(sample.id).operators}
        if kinds - seen:
            found.append(sample)
            seen |= kinds
    return found


def attempt(case: list[Any]) -> str:
    """Build and run one sample with one parameter changed; in a word, what came of it, and what the parameter was.

    Raises:
        MemoryError: where an operator asked for memory without having looked at how much.
        Exception: what is no EngineError.
    """
    return _attempt(case, _by_reference)


def attempt_compiled(case: list[Any]) -> str:
    """The same on both backends.

    Raises:
        DisagreementError: machine code and reference do not both refuse the case or agree on its result.
    """
    return _attempt(case, by_both)


def _attempt(case: list[Any], run_graph: Callable[[engine.RuntimeGraph, Sample], list[Any]]) -> str:
    sample_id, name, key, which = case
    sample, source = _samples()[sample_id], _loaded(sample_id)
    op = next(op for op in source.operators if op.name == name)
    value = mutants(key, op.params[key])[which]
    changed = f"{op.type} {key}={repr(value)[:60]}"
    try:
        graph = engine.RuntimeGraph.from_source(_changed(source, op, key, value))
        graph.build()
        if (largest := _largest_bytes(graph)) > _LARGE:  # what is asked for is large, and may take its time
            return f"large: {changed} makes {largest:,} bytes"
        if (taken := _taken_bytes(graph, sample)) > _MUCH:
            return f"large: {changed} takes {taken:,} bytes"
        outputs = run_graph(graph, sample)
    except engine.EngineError as error:
        return f"{refusal(error)}: {changed}: {error}"[:600]
    made = max((output.nbytes for output in outputs), default=0)
    return f"{'large' if made > _LARGE else 'result'}: {changed} -> {[output.shape for output in outputs]}"


def _by_reference(graph: engine.RuntimeGraph, sample: Sample) -> list[Any]:
    return engine.Session(graph, backend="reference").run(sample.sets[0].inputs)


def refusal(error: engine.EngineError) -> str:
    """The kind of an error, with the foreign one it stands for.

    Raises:
        MemoryError: if it stands for that.
    """
    causes = _causes(error)
    if any(isinstance(cause, MemoryError) for cause in causes):
        raise error
    foreign = next((cause for cause in causes if not isinstance(cause, engine.EngineError)), None)
    return type(error).__name__ if foreign is None else f"{type(error).__name__} for {type(foreign).__name__}"


def _largest_bytes(graph: engine.RuntimeGraph) -> int:
    specs = [operand.spec for operand in graph.operands.values()]
    return max(((spec.size or 0) * spec.dtype.itemsize for spec in specs if spec is not None), default=0)


def _taken_bytes(graph: engine.RuntimeGraph, sample: Sample) -> int:
    """Return the bytes of a run by the engine's own estimate, which a server checks before it admits one."""
    return engine.Session(graph, backend="reference").estimate_bytes(sample.sets[0].inputs)


def _causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while (cause := found[-1].__cause__) is not None:
        found.append(cause)
    return found


def _changed(graph: pnnx.Graph, op: pnnx.Operator, key: str, value: Any) -> pnnx.Graph:
    changed = dataclasses.replace(op, params={**op.params, key: value})
    return dataclasses.replace(graph, operators=[changed if each is op else each for each in graph.operators])


@cache
def _samples() -> dict[str, Sample]:
    return {sample.id: sample for sample in all_samples()}


@cache
def _graph_of(sample_id: str) -> pnnx.Graph:
    """The text alone: attributes are empty."""
    return parse_param(_samples()[sample_id].param.encode(), sample_id).graph


@cache
def _loaded(sample_id: str) -> pnnx.Graph:
    with tempfile.TemporaryDirectory() as folder:
        return pnnx.read(*_samples()[sample_id].extract(Path(folder)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try cases for as long as told; print the findings and count the outcomes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the order (0)")
    parser.add_argument("--only", default="", help="one operator type")
    parser.add_argument("--all", action="store_true", help="every sample, not the first of each set of parameters")
    parser.add_argument("--backend", choices=FRONT_ENDS, default="reference", help="compiled: both, and held together")
    parser.add_argument("--show", default="", help="print outcomes that begin so")
    options = parser.parse_args(arguments)
    samples = list(_samples().values())
    wanted = list(cases(samples if options.all else first_of_each(samples), options.only))
    random.Random(options.seed).shuffle(wanted)
    tried = run(FRONT_ENDS[options.backend], _for(wanted, options.seconds))
    return report(tried, len(wanted), options.show)


def _for(wanted: Sequence[Any], seconds: float) -> Iterator[Any]:
    end = time.monotonic() + seconds
    for case in wanted:
        if time.monotonic() > end:
            return
        yield case


def report(results: Iterator[Result], total: int | None = None, show: str = "") -> int:
    """Print findings as they come, outcomes that begin as told, and all counted at the end; the exit status."""
    outcomes: Counter[str] = Counter()
    findings = 0
    for result in results:
        outcomes[result.outcome.partition(":")[0]] += 1
        if result.is_finding:
            findings += 1
            print(f"FINDING {result}", flush=True)
        elif show and result.outcome.startswith(show):
            print(result.outcome, result.case[0], flush=True)
    tried = f"{outcomes.total():,}" if total is None else f"{outcomes.total():,} of {total:,}"
    print(f"{tried} cases, {findings} findings: {dict(outcomes.most_common())}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
