"""ONNX files by structure: messages, tensors, places of tensors, graphs inside of graphs, changed and overstated.

A case is the name of a model, or of a file of one, and a seed; or the bytes themselves. The file is read, checked,
described, written as a pair and run by the reference and as machine code: each step gives a result or an EngineError
that names no folder, soon, in little memory, and where both ways give finite numbers they give the same.

    python -m tests.fuzz.onnx_files --seconds 3600 --seed 1 [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from tests.engine.onnx_files.models import onnx
from tests.fuzz.child import Limits, Result, run
from tests.fuzz.files import _inputs, _is_dear, _run, _until
from tests.fuzz.onnx_changes import BOMBS, CHANGES, mangled
from tests.fuzz.onnx_seeds import built, of_the_package
from tests.fuzz.parameters import report

FRONT_END: Final = "tests.fuzz.onnx_files:attempt"
LIMITS: Final = Limits(cpu_s=10.0, case_bytes=1 << 30)
# A model of very small nodes has one in 13 bytes, which takes 130 us on a slow machine.
READ_S: Final = 4.0
READ_S_A_BYTE: Final = 20e-6
RUN_S: Final = 2.0
MANY_ELEMENTS: Final = 1e6
# Stands for a dynamic dimension where the size of a tensor is estimated.
OPEN_SIZE: Final = 32
# Most of what is to be found lies before a run: one case in so many becomes machine code.
_COMPILED: Final = 8


def content_of(case: Any) -> bytes:
    """The file of a case."""
    if isinstance(case, dict):
        return base64.b64decode(case["onnx"])
    name, seed = case
    dice = random.Random(f"{os.path.basename(name)} {seed}")
    content = Path(name).read_bytes() if os.sep in name else built()[name]
    if dice.random() < 0.85 and name != "deep":
        proto = onnx.ModelProto.FromString(content)
        # A text that is no UTF-8, a number of no kind: what the package does not write is left out.
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            with suppress(Exception):
                dice.choice(CHANGES)(proto, dice)
        if dice.random() < 0.06:
            with suppress(Exception):
                dice.choice(BOMBS)(proto, dice)
        with suppress(Exception):
            content = proto.SerializeToString()
    return mangled(content, dice) if dice.random() < 0.2 else content


def attempt(case: Any) -> str:
    """Read, describe, write and run a case; in a word, what came of it.

    Raises:
        ArithmeticError: machine code and the reference disagree.
        TimeoutError: it took long to read, or what was to be cancelled was not.
        ValueError: an error told where the file is.
        Exception: what is no EngineError.
    """
    with tempfile.TemporaryDirectory(prefix="fuzzed_folder") as above:
        folder = Path(above) / "model"
        _furnish(folder)
        path = folder / "model.onnx"
        path.write_bytes(content_of(case))
        try:
            return _tried(path, case)
        except engine.EngineError as error:
            if "fuzzed_folder" in str(error) or len(str(error)) > 1 << 14:
                raise ValueError(str(error)) from error
            return f"refused by {type(error).__name__}: {str(error)[:300]}"


def _tried(path: Path, case: Any) -> str:
    begin = time.process_time()
    try:
        graph = engine.load(path)
    finally:
        took = time.process_time() - begin
        if took > READ_S + READ_S_A_BYTE * path.stat().st_size:
            raise TimeoutError(f"{took:.1f} s to read {path.stat().st_size:,} bytes")
    for problem in engine.check(path):
        str(problem)
    if any(_size(port) > MANY_ELEMENTS for port in graph.inputs):
        return "too large to be run here"
    reference = engine.Session(graph, backend="reference")
    with engine.cancelling(lambda: time.process_time() > begin + 2 * RUN_S):
        reference.describe()
    with suppress(engine.EngineError):  # what a pair has no word for
        graph.save(path.parent / "pair.pnnx.param", path.parent / "pair.pnnx.bin")
        engine.load(path.parent / "pair.pnnx.param")
    inputs = _fitting(graph, case)
    if inputs is None or _is_dear(graph, reference, inputs):
        return "too large to be run here"
    end = time.process_time() + RUN_S
    with engine.cancelling(lambda: time.process_time() > end):
        try:
            if isinstance(case, list) and case[1] % _COMPILED:
                return f"ran: {[each.shape for each in reference.run(inputs)]}"
            return _run(graph, reference, inputs)
        except engine.RunCancelledError:
            return "long, and cancelled"


def _size(port: engine.Port) -> float:
    """Elements of an input as a description tries it."""
    sizes = () if port.spec is None else port.spec.shape
    return float(np.prod([float(OPEN_SIZE if size is None else size) for size in sizes]))


def _fitting(graph: engine.RuntimeGraph, case: Any) -> list[np.ndarray] | None:
    if any(port.spec is not None and port.spec.dtype.kind == "O" for port in graph.inputs):
        shapes = [[2 if dim is None else dim for dim in port.spec.shape] for port in graph.inputs if port.spec]
        if len(shapes) < len(graph.inputs) or any(np.prod([float(dim) for dim in shape]) > 1e5 for shape in shapes):
            return None
        return [np.full(shape, "a b" if port.spec.dtype.kind == "O" else 1).astype(port.spec.dtype)
                for shape, port in zip(shapes, graph.inputs, strict=True) if port.spec]  # fmt: skip
    return _inputs(graph, {} if isinstance(case, dict) else {"new": 0})


def _furnish(folder: Path) -> None:
    """Create the files that locations of tensors may lead to."""
    (folder / "below").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(np.ones(100, np.float32).tobytes())
    (folder.parent / "weights.bin").write_bytes(bytes(4096))
    (folder / "link").symlink_to("../weights.bin")
    os.mkfifo(folder / "pipe")
    with open(folder / "holes", "wb") as holes:
        holes.truncate(1 << 40)


def cases(names: Sequence[str], seed: int) -> Iterator[list[Any]]:
    """Models in any order, over and over, each with a seed of its own."""
    dice = random.Random(seed)
    while True:
        yield [dice.choice(names), dice.randrange(2**40)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try cases for as long as told; print the findings and count the outcomes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    parser.add_argument("--keep", type=Path, help="folder for the files of findings, as seeds have them")
    parser.add_argument("--built", action="store_true", help="no models of the package's own tests")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        names = list(built()) * 40
        for name, content in () if options.built else of_the_package():
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(content)
            names.append(str(path))
        chosen = _until(cases(names, options.seed), end)
        return report(_kept(run(FRONT_END, chosen, LIMITS), options.keep))


def _kept(results: Iterator[Result], folder: Path | None) -> Iterator[Result]:
    for index, result in enumerate(results):
        if result.is_finding and folder is not None:
            found = {"onnx": base64.b64encode(content_of(result.case)).decode(), "found": result.outcome}
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{index}.json").write_text(json.dumps(found, indent=1))
        yield result


if __name__ == "__main__":
    sys.exit(main())
