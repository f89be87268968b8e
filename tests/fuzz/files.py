"""Models by structure: lines, operands, types, shapes, parameters and members of real files, exchanged and overstated.

A case is a recorded sample and a seed, or a pair of files itself. The pair is loaded, described, and run, by the
reference and as machine code, at the recorded batch and at another: each step gives a result or an EngineError, soon,
in little memory, and where both ways give finite numbers they give the same.

    python -m tests.fuzz.files --seconds 3600 --seed 1 [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from engine import pnnx
from engine.layers.definition.known import is_repeatable
from tests.engine.layers.samples import Sample, all_samples
from tests.engine.pnnx.build import save
from tests.engine.pnnx.fuzz import mangle
from tests.fuzz.agreement import last_digit
from tests.fuzz.child import Limits, Result, run
from tests.fuzz.conditioning import rounding_of
from tests.fuzz.parameters import report

FRONT_END: Final = "tests.fuzz.files:attempt"
LIMITS: Final = Limits(cpu_s=10.0, case_bytes=3 << 29)
NUMBERS: Final = (
    "0", "-1", "1", "2", "3", "7", "40000", "1000000", "2147483647", "-2147483648", "4294967296", "9223372036854775807",
    "9223372036854775808", "1e308", "-1e308", "nan", "inf", "0.5",
)  # fmt: skip
SIZES: Final = ("0", "1", "2", "?", "?", "-1", "3", "1000", "40000", "1000000", "2147483647", "9223372036854775808")
DTYPES: Final = ("f32", "f64", "f16", "bf16", "i32", "i64", "i8", "u8", "bool", "c64")
DEAR_FLOPS: Final = 2e8
DEAR_BYTES: Final = 1 << 26
UNUSUAL: Final = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-42, -1.0, 3e38, 1e30, 1e15)
WHOLE: Final = (0, 1, -1, 127, -128, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**6)
DYNAMIC_SIZES: Final = (0, 1, 3, 40_000)
MANY_NUMBERS: Final = 1 << 17
# Tolerance for sums in another order and the transforms of Winograd, also with changed parameters.
AGREE: Final = 1e-3
# Above this, rounding decides which of two logits is larger, so their exponentials are not compared.
_WILD: Final = 1e5

Lines = list[str]


def renumber(lines: Lines, rng: random.Random) -> None:
    """A number of a parameter."""
    _replace(lines, rng, r"(?<= )\w+=\S+", r"(?<=[=(,])-?[0-9.e+-]+(?=[,)]|$)", NUMBERS)


def resize(lines: Lines, rng: random.Random) -> None:
    """A size of an operand, wherever it is announced, or of an attribute."""
    _announce(lines, rng, r"(?<=[(,])(?:\d+|\?)(?=[,)])", SIZES)


def retype(lines: Lines, rng: random.Random) -> None:
    """Another type for an operator: one that stands elsewhere in the file, or in any sample."""
    at = _operator(lines, rng)
    words = lines[at].split()
    lines[at] = " ".join([rng.choice(_types()), *words[1:]])


def redtype(lines: Lines, rng: random.Random) -> None:
    """Another element type."""
    _announce(lines, rng, r"(?<=\))[a-z]+\d*", DTYPES)


def rewire(lines: Lines, rng: random.Random) -> None:
    """An operand in the place of another."""
    at = _operator(lines, rng)
    words = lines[at].split()
    count = int(words[2])
    if count:
        made = _operands(lines[:at]) if rng.random() < 0.9 else _operands(lines)
        place, other = 4 + rng.randrange(count), rng.choice(made or [words[4]])
        words = [re.sub(rf"^([#$].*=|#){re.escape(words[place])}(?==|$)", rf"\g<1>{other}", word) for word in words]
        words[place] = other
        lines[at] = " ".join(word for word in words if not word.startswith(f"#{other}="))


def drop(lines: Lines, rng: random.Random) -> None:
    """An operator less; who took what it made takes what it took, mostly."""
    at = _operator(lines, rng)
    words = lines.pop(at).split()
    ins, outs = int(words[2]), int(words[3])
    taken, made = words[4 : 4 + ins], set(words[4 + ins : 4 + ins + outs])
    if taken and rng.random() < 0.9:
        for place in range(at, len(lines)):
            users = lines[place].split()
            count = int(users[2])
            users[4 : 4 + count] = [rng.choice(taken) if each in made else each for each in users[4 : 4 + count]]
            lines[place] = " ".join(users)


def repeat(lines: Lines, rng: random.Random) -> None:
    """An operator twice, the second time with results of its own."""
    at = _operator(lines, rng)
    words = lines[at].split()
    ins, outs = int(words[2]), int(words[3])
    for place in range(4 + ins, 4 + ins + outs):
        words[place] += "_again"
    words[1] += "_again"
    lines.insert(at + 1, " ".join(words))


def lose(lines: Lines, rng: random.Random) -> None:
    """A parameter, attribute or annotation less."""
    at = _operator(lines, rng)
    words = lines[at].split()
    first = 4 + int(words[2]) + int(words[3])
    if len(words) > first:
        del words[rng.randrange(first, len(words))]
        lines[at] = " ".join(words)


def borrow(lines: Lines, rng: random.Random) -> None:
    """A parameter of another operator."""
    donor, at = lines[_operator(lines, rng)].split(), _operator(lines, rng)
    given = [word for word in donor[4 + int(donor[2]) + int(donor[3]) :] if word[0] not in "#@$"]
    if given:
        lines[at] += f" {rng.choice(given)}"


def nest(lines: Lines, rng: random.Random) -> None:
    """An expression that is nested deeper, or wider, or applies another function."""
    places = [at for at, line in enumerate(lines) if " expr=" in line]
    if places:
        at = rng.choice(places)
        depth, function = rng.choice((1, 3, 50, 800, 20000)), rng.choice(("neg", "sin", "exp", "sqrt", "int", "size"))
        tail = "," + rng.choice(NUMBERS) if function == "size" else ""
        inner = lines[at].split(" expr=", 1)[1].split(" ")[0]
        lines[at] = lines[at].replace(f" expr={inner}", f" expr={f'{function}(' * depth}{inner}{f'{tail})' * depth}", 1)


MUTATIONS: Final[tuple[Callable[[Lines, random.Random], None], ...]] = (
    renumber, renumber, renumber, resize, resize, retype, redtype, rewire, rewire, drop, repeat, lose, borrow, nest,
)  # fmt: skip


def mutate(text: str, rng: random.Random) -> str:
    """One to three changes of a text file that leave it one; its counts are made to fit, mostly."""
    lines = text.splitlines()[2:]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if lines:
            rng.choice(MUTATIONS)(lines, rng)
    if rng.random() < 0.95:
        lines = [_told(line) for line in lines]
    operands = {word for line in lines for word in line.split()[4 : 4 + sum(map(int, line.split()[2:4]))]}
    counts = [len(lines), len(operands)] if rng.random() < 0.95 else [int(rng.choice(SIZES[-3:])), len(operands)]
    return f"7767517\n{counts[0]} {counts[1]}\n" + "".join(f"{line}\n" for line in lines)


def reweigh(param: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
    """The pair with numbers in one of its stored tensors that are unusual, or all alike."""
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), param, weights)
        graph = pnnx.read(path)
        places = [(at, name) for at, op in enumerate(graph.operators) for name in op.attributes]
        if not places:
            return param, weights
        at, name = rng.choice(places)
        op = graph.operators[at]
        old = op.attributes[name]
        data = np.array(old.data)
        with np.errstate(all="ignore"):
            values = np.array(rng.choice(UNUSUAL if data.dtype.kind in "fc" else WHOLE)).astype(data.dtype)
        data[(np.random.default_rng(rng.randrange(2**32)).random(data.shape) < rng.choice((0.1, 1.0)))] = values
        changed = replace(old, data=data)
        graph.operators[at] = replace(op, attributes={**op.attributes, name: changed})
        other = Path(folder) / "other.pnnx.param"
        pnnx.write(graph, other)
        return other.read_bytes(), other.with_suffix(".bin").read_bytes()


def pair_of(case: Any) -> tuple[bytes, bytes]:
    """The two files of a case."""
    if isinstance(case, dict):
        return case["param"].encode(), base64.b64decode(case["bin"])
    sample_id, seed = case
    rng = random.Random(f"{sample_id} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        param, weights = (path.read_bytes() for path in samples()[sample_id].extract(Path(folder)))
    if rng.random() < 0.2:
        param, weights = reweigh(param, weights, rng)
    if rng.random() < 0.9:
        param = mutate(param.decode(), rng).encode()
    return mangle((param, weights), rng) if rng.random() < 0.2 else (param, weights)


def attempt(case: Any) -> str:
    """Load, describe and run a case; in a word, what came of it.

    Raises:
        ArithmeticError: machine code and the reference disagree.
        Exception: what is no EngineError.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pnnx.param"
        for file, content in zip((path, path.with_suffix(".bin")), pair_of(case), strict=True):
            file.write_bytes(content)
        try:
            graph = engine.load(path)
            reference = engine.Session(graph, backend="reference")
            inputs = _inputs(graph, case)
            if inputs is None or _is_dear(graph, reference, inputs):
                return "too large to be run here"
            reference.describe()
            return _run(graph, reference, inputs)
        except engine.EngineError as error:
            return f"refused by {type(error).__name__}: {str(error)[:300]}"


def _is_dear(graph: engine.RuntimeGraph, session: engine.Session, inputs: list[np.ndarray]) -> bool:
    """Return whether a valid run exceeds the limits of a case: a server admits and times those."""
    return (graph.describe()["totals"]["flops"] or 0) > DEAR_FLOPS or session.estimate_bytes(inputs) > DEAR_BYTES


def _run(graph: engine.RuntimeGraph, reference: engine.Session, inputs: list[np.ndarray]) -> str:
    with engine.asking_for_room(_affordable):
        return _run_both(graph, reference, inputs)


def _affordable(count: int) -> None:
    """Refuse sizes decided by values, which no estimate of a run includes; a server checks them as well."""
    if count > DEAR_BYTES:
        raise engine.ShapeError("too large to be run here", found=count)


def _run_both(graph: engine.RuntimeGraph, reference: engine.Session, inputs: list[np.ndarray]) -> str:
    compiled = engine.Session(graph, threads=1, cache=None)
    expected, found = _outputs(reference, inputs), _outputs(compiled, inputs)
    is_repeatable_graph = all(op.layer is None or is_repeatable(op.definition) for op in graph.operators)
    # What no output needs may refuse these inputs, and is not run by machine code.
    if is_repeatable_graph and not (isinstance(expected, engine.EngineError) and _has_dead_operators(graph)):
        _compare(expected, found, inputs, reference)
    compiled.prepare()
    compiled.describe()
    for others in _other_inputs(graph, inputs):
        if _takes_much(reference, others):
            continue
        with suppress(engine.EngineError):  # what cannot be prepared is refused by the run as well
            compiled.prepare(specs=[engine.TensorSpec(each.shape, each.dtype) for each in others])
        expected_of_others, found = _outputs(reference, others), _outputs(compiled, others)
        if is_repeatable_graph and not isinstance(expected_of_others, engine.EngineError):
            _compare(expected_of_others, found, others, reference)
    return f"ran: {'refused' if isinstance(expected, engine.EngineError) else [array.shape for array in expected]}"


def _has_dead_operators(graph: engine.RuntimeGraph) -> bool:
    needed: set[str] = set()
    waiting = [graph.operands[port.operand] for port in graph.outputs]
    while waiting:
        maker = waiting.pop().producer
        if maker is not None and maker.name not in needed:
            needed.add(maker.name)
            waiting += maker.inputs
    return len(needed) < sum(op.type != "pnnx.Output" for op in graph.operators)


def _other_inputs(graph: engine.RuntimeGraph, inputs: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Another batch, and for each dynamic dimension other sizes: none, one, a few, one that is too long for a stack."""
    yield [np.concatenate([each, each]) if each.ndim else each for each in inputs]
    opens = {axis for port in graph.inputs if port.spec for axis, dim in enumerate(port.spec.shape) if dim is None}
    rng = np.random.default_rng(0)
    for axis in sorted(opens):
        for size in DYNAMIC_SIZES:
            yield [_resized(port, each, axis, size, rng) for port, each in zip(graph.inputs, inputs, strict=True)]


def _resized(port: engine.Port, array: np.ndarray, axis: int, size: int, rng: np.random.Generator) -> np.ndarray:
    if port.spec is None or axis >= array.ndim or port.spec.shape[axis] is not None:
        return array
    shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
    if math.prod(shape) > MANY_NUMBERS:
        return array
    if not array.size:
        return np.zeros(shape, array.dtype)
    return rng.choice(array.reshape(-1), shape)


def _takes_much(session: engine.Session, inputs: list[np.ndarray]) -> bool:
    try:
        return sum(each.size for each in inputs) > MANY_NUMBERS or session.estimate_bytes(inputs) > DEAR_BYTES
    except engine.EngineError:
        return False


def _outputs(session: engine.Session, inputs: list[np.ndarray]) -> list[np.ndarray] | engine.EngineError:
    try:
        return session.run(inputs)
    except engine.RunCancelledError:  # it says nothing of the answer
        raise
    except engine.EngineError as error:
        return error


def _compare(expected: Any, found: Any, inputs: list[np.ndarray], reference: engine.Session) -> None:
    if isinstance(expected, engine.EngineError) or isinstance(found, engine.EngineError):
        if isinstance(expected, engine.EngineError) != isinstance(found, engine.EngineError):
            raise ArithmeticError(f"reference: {str(expected)[:300]}; compiled: {str(found)[:300]}")
        return
    for want, have in zip(expected, found, strict=True):
        if (want.shape, want.dtype) != (have.shape, have.dtype):
            raise ArithmeticError(f"reference: {want.shape} {want.dtype}; compiled: {have.shape} {have.dtype}")
        if want.dtype.kind != "f" or not np.isfinite(want).all() or not want.size:
            continue
        largest = np.abs(want.astype(np.float64)).max()
        error = np.abs(want.astype(np.float64) - have).max()
        share = max(AGREE, _narrowest(inputs))
        is_close = error <= max(share * max(largest, 1e-3), rounding_of(inputs))
        if largest < 1e18 and not is_close and _largest_on_the_way(reference, inputs) < _WILD:
            raise ArithmeticError(f"differs by {np.abs(want - have).max()} of {largest}")


def _narrowest(inputs: list[np.ndarray]) -> float:
    """Return the precision that layers round narrow inputs' results to, and machine code does not; 0 for none."""
    return max((last_digit(each.dtype) for each in inputs), default=0.0)


def _largest_on_the_way(reference: engine.Session, inputs: list[np.ndarray]) -> float:
    """The largest magnitude of any operand of a run."""
    taps = reference.run(inputs, taps=list(reference.graph.operands)).taps.values()
    # Of inputs that are run item by item a tap has one value an item.
    values = [item for tap in taps for item in (tap if isinstance(tap, list | tuple) else [tap])]
    arrays = [each for each in values if isinstance(each, np.ndarray) and each.dtype.kind == "f" and each.size]
    return max((float(np.nanmax(np.abs(each), initial=0)) for each in arrays), default=0.0)


def _inputs(graph: engine.RuntimeGraph, case: Any) -> list[np.ndarray] | None:
    """Return the sample's recorded inputs if they fit, else noise of the announced shapes."""
    given = samples()[case[0]].sets[0].inputs if isinstance(case, list) else []
    if len(given) == len(graph.inputs) and all(map(_fits, graph.inputs, given)):
        return list(given)
    rng, made = np.random.default_rng(0), []
    for port in graph.inputs:
        dims = [2 if dim is None else dim for dim in (port.spec.shape if port.spec is not None else (None,))]
        if np.prod([float(dim) for dim in dims]) > 1e6:
            return None
        made.append((3 * rng.standard_normal(dims)).astype(port.spec.dtype if port.spec is not None else np.float32))
    return made


def _fits(port: engine.Port, array: np.ndarray) -> bool:
    spec = port.spec
    if spec is None or spec.dtype != array.dtype or len(spec.shape) != array.ndim:
        return False
    return all(dim in (None, size) for dim, size in zip(spec.shape, array.shape, strict=True))


def _replace(lines: Lines, rng: random.Random, pattern: str, inner: str, values: Sequence[str]) -> None:
    """A match of the inner pattern in a match of the outer one becomes one of the values."""
    pieces = [(at, piece) for at, line in enumerate(lines) for piece in re.finditer(pattern, line)]
    places = [(at, piece.start(), match) for at, piece in pieces for match in re.finditer(inner, piece[0])]
    if places:
        at, start, match = rng.choice(places)
        lines[at] = lines[at][: start + match.start()] + rng.choice(values) + lines[at][start + match.end() :]


def _announce(lines: Lines, rng: random.Random, pattern: str, values: Sequence[str]) -> None:
    """One match of a pattern in an announced shape becomes one of the values, wherever the operand is announced."""
    words = sorted({word for line in lines for word in line.split() if re.match(r"[#@]\S+=\(", word)})
    places = [
        (word, match) for word in words for match in re.finditer(pattern, word) if match.start() > word.index("=")
    ]
    if places:
        word, match = rng.choice(places)
        other = word[: match.start()] + rng.choice(values) + word[match.end() :]
        lines[:] = [" ".join(other if each == word else each for each in line.split()) for line in lines]


def _told(line: str) -> str:
    """A line without what it says of operands that are not its own."""
    words = line.split()
    own = words[4 : 4 + int(words[2]) + int(words[3])]
    rest = words[4 + len(own) :]
    kept = [word for word in rest if word[0] not in "#$" or re.split("[#=]", word)[1 if word[0] == "#" else -1] in own]
    return " ".join([*words[:4], *own, *kept])


def _operator(lines: Lines, rng: random.Random) -> int:
    return rng.randrange(len(lines))


def _operands(lines: Lines) -> list[str]:
    return [word for line in lines for word in line.split()[4 : 4 + sum(map(int, line.split()[2:4]))]]


@cache
def samples() -> dict[str, Sample]:
    """Return the samples to change, by name: the recorded layers and networks."""
    return {sample.id: sample for folder in ("layers", "networks") for sample in all_samples(folder)}


@cache
def _types() -> list[str]:
    return sorted(engine.registry)


def cases(seed: int) -> Iterator[list[Any]]:
    """Samples in any order, over and over, each with a seed of its own."""
    rng = random.Random(seed)
    names = sorted(samples())
    while True:
        yield [rng.choice(names), rng.randrange(2**40)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try cases for as long as told; print the findings and count the outcomes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    parser.add_argument("--keep", type=Path, help="folder for the files of findings, as seeds have them")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    results = run(FRONT_END, _until(cases(options.seed), end), LIMITS)
    return report(_kept(results, options.keep), 0)


def _until(chosen: Iterator[Any], end: float) -> Iterator[Any]:
    for case in chosen:
        if time.monotonic() > end:
            return
        yield case


def _kept(results: Iterator[Result], folder: Path | None) -> Iterator[Result]:
    for index, result in enumerate(results):
        if result.is_finding and folder is not None:
            param, weights = pair_of(result.case)
            found = {"param": param.decode(errors="replace"), "bin": base64.b64encode(weights).decode()}
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{index}.json").write_text(json.dumps(found | {"found": result.outcome}, indent=1))
        yield result


if __name__ == "__main__":
    sys.exit(main())
