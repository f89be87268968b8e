"""Run ONNX's backend tests and write the results to docs/onnx.md.

The package ``onnx`` brings the cases: its code generates those of single operators, the others are files.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

import engine

PAGE: Final = Path(__file__).with_name("onnx.md")
BEGIN: Final = "<!-- conformance: written by docs/generate_onnx_conformance.py -->"
END: Final = "<!-- end of conformance -->"
FOLDERS: Final = ("simple", "pytorch-converted", "pytorch-operator")

REASONS: Final[dict[str, str]] = {
    "ImageDecoder": "the service decodes images, graphs do not",
    "RegexFullMatch": "a pattern from an untrusted file can take unbounded time",
    "Bernoulli": "random: implementations draw different numbers",
    "Dropout": "random dropout is for training",
    "Attention": "one case exceeds half precision",
    "Resize": "aligned corners use an unrounded size; onnxruntime and PyTorch use the rounded one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Model with inputs and expected outputs."""

    kind: str
    name: str
    model: Any
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float = 1e-3
    atol: float = 1e-5

    @property
    def operator(self) -> str:
        """Return the operator that is tested."""
        name = self.name.removeprefix("test_")
        nodes = self.model.graph.node
        found = str(nodes[0].op_type) if len(nodes) else "-"
        known = [each for each in REASONS if name.replace("_", "").startswith(each.lower())]
        return known[0] if known else found

    @property
    def is_training(self) -> bool:
        """Return whether a node is of ONNX's training domain, which is not supported."""
        return any("training" in each.domain for each in self.model.opset_import)


def cases() -> Iterator[Case]:
    """Yield all cases."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = collect_testcases(None)
    for each in made:
        yield Case(kind="node", name=each.name, model=each.model, data=each.data_sets, rtol=each.rtol, atol=each.atol)
    for folder in FOLDERS:
        yield from stored_cases(folder)


def stored_cases(folder: str) -> Iterator[Case]:
    """Yield the cases of a folder of the package."""
    import onnx

    root = Path(onnx.__file__).parent / "backend/test/data" / folder
    for path in sorted(each for each in root.iterdir() if (each / "model.onnx").exists()):
        model = onnx.load(str(path / "model.onnx"))
        sets = [
            tuple(_values(each, side, getattr(model.graph, side)) for side in ("input", "output"))
            for each in sorted(path.glob("test_data_set*"))
        ]
        yield Case(kind=folder, name=path.name, model=model, data=sets)  # type: ignore[arg-type]


def _values(folder: Path, side: str, ports: Any) -> list[Any]:
    return [_value(folder / f"{side}_{k}.pb", ports[k].type) for k in range(len(list(folder.glob(f"{side}_*.pb"))))]


def _value(path: Path, kind: Any) -> Any:
    import onnx

    if kind.WhichOneof("value") == "sequence_type":
        message = onnx.SequenceProto.FromString(path.read_bytes())
        return onnx.numpy_helper.to_list(message)
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def fault(case: Case, folder: Path, backend: Literal["auto", "reference"] = "reference") -> str | None:
    """Return the first difference from the expected outputs; None if there is none.

    Args:
        backend: ``auto`` for machine code, where the case has an operator with a kernel.
    """
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    try:
        session = engine.Session(engine.load(path), backend=backend, threads=1, cache=None)
        for inputs, outputs in case.data:
            found = session.run([_plain(each) for each in inputs])
            wanted = [leaf for each in outputs for leaf in _leaves(_plain(each))]
            if len(found) != len(wanted):
                return f"{len(found)} outputs, expected {len(wanted)}"
            for mine, theirs in zip(found, wanted, strict=True):
                if problem := _difference(mine, np.asarray(theirs), case):
                    return problem
    except engine.EngineError as error:
        return str(error)
    return None


def _plain(value: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _leaves(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, list) else [value]


def _difference(mine: Any, theirs: Any, case: Case) -> str | None:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{mine.dtype} {mine.shape}, expected {theirs.dtype} {theirs.shape}"
    if theirs.dtype.kind in "OU":
        return None if bool((mine == theirs).all()) else "other texts"
    rtol, atol = case.rtol, case.atol
    if theirs.dtype.kind == "V":  # of few bits: a step of the narrowest is a quarter
        mine, theirs, rtol, atol = mine.astype(np.float32), theirs.astype(np.float32), 1e-2, 1e-2
    return None if np.allclose(mine, theirs, rtol=rtol, atol=atol, equal_nan=True) else "other values"


def main() -> int:
    """Write the page."""
    passed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            if case.is_training:
                continue
            problem = fault(case, Path(folder))
            for row in (passed[case.operator] if case.kind == "node" else [0, 0], kinds[case.kind]):
                row[0] += problem is None
                row[1] += 1
            if problem is not None:
                sys.stdout.write(f"{case.name}: {problem}\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{_table(passed, kinds)}\n{END}{after}")
    return 0


def _table(passed: dict[str, list[int]], kinds: dict[str, list[int]]) -> str:
    import onnx

    lines = [
        f"Cases of `onnx` {onnx.__version__}, operator sets up to {onnx.defs.onnx_opset_version()}, without training:",
        "",
        "| cases | pass | of | share |",
        "|---|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {kind} | {good} | {count} | {good / count:.1%} |" for kind, (good, count) in kinds.items()]
    lines += [
        "",
        "Operators with a case that does not pass:",
        "",
        "| operator | pass | of | why |",
        "|---|---|---|---|",
    ]
    for name, (good, count) in sorted(passed.items()):
        if good < count:
            lines.append(f"| `{name}` | {good} | {count} | {REASONS.get(name, '')} |")
    whole = sum(good == count for good, count in passed.values())
    lines += ["", f"All cases of {whole} other operators pass."]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
