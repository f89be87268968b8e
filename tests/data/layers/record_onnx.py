"""Record the answers of the ONNX standard, checked against onnxruntime, for operators that pnnx does not convert.

    python tests/data/layers/record_onnx.py onnx_nodes              (needs onnx, onnxruntime and pnnx)
    python tests/data/layers/record_onnx.py onnx_nodes --only pad   (re-records some, keeps the rest)

A family is a module beside this one with a list ``CASES``; its zip is laid out as record.py lays it out. A case is a model
of one operator, from the standard's own tests by name or made here; its later inputs may be made constants, as they are in
most models. The pair is what pnnx makes of it, or, with ``written``, what pnnx's reader makes of it before pnnx's patterns
have their turn: so those operators are tried, too, for which pnnx has patterns that do not match every model.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pnnx
from onnx import numpy_helper

HERE = Path(__file__).parent
NEWEST_IR, NEWEST_OPSET = 10, 24  # that the runtime inside pnnx reads
CODES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "bool": "bool", "complex64": "c64", "complex128": "c128",
}  # fmt: skip
_KEPT = ("float32", "int32", "int64", "bool")
_FUSED = {
    "Clip": (None, "min", "max"), "Expand": (None, "shape"), "Gather": (None, "indices"), "Pad": (None, "pads", "value"),
    "Reshape": (None, "shape"), "Resize": (None, "roi", "scales", "sizes"), "Squeeze": (None, "axes"),
    "Slice": (None, "starts", "ends", "axes", "steps"), "Tile": (None, "repeats"), "Unsqueeze": (None, "axes"),
    "Upsample": (None, "scales"), **{f"Reduce{kind}": (None, "axes") for kind in (
        "L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")},
}  # fmt: skip
_WEIGHTS = {
    "BatchNormalization": (1, 2, 3, 4), "Conv": (1, 2), "ConvTranspose": (1, 2), "Gather": (0,), "Gemm": (1, 2),
    "GroupNormalization": (1, 2), "GRU": (1, 2, 3, 5), "InstanceNormalization": (1, 2), "LayerNormalization": (1, 2),
    "LSTM": (1, 2, 3, 5, 6), "RNN": (1, 2, 3, 5),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One model of one operator.

    Args:
        name: of the standard's node test, without ``test_``; or of the model that is given.
        constants: whether all inputs but the first are constants of the model.
        written: the pair is written here rather than by pnnx.
        model, inputs: a model of our own; its answers are onnxruntime's.
        any_values: only shapes and dtypes are settled.
        runtime: whether onnxruntime knows the operator and gives the standard's answer.
    """

    name: str
    constants: bool = False
    written: bool = False
    model: onnx.ModelProto | None = None
    inputs: Sequence[np.ndarray] = ()
    runtime: bool = True
    rtol: float = 1e-4
    atol: float = 1e-5

    @property
    def id(self) -> str:
        return self.name + ("_constants" if self.constants else "") + ("_written" if self.written else "")


def standard_cases() -> dict[str, Any]:
    """The node tests of the standard by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name.removeprefix("test_"): case for case in collect_testcases(None)}


def prepared(case: Case, standard: dict[str, Any]) -> tuple[onnx.ModelProto, list[Any], list[Any] | None]:
    """The model, its inputs, and the standard's answers where there are some."""
    model = onnx.ModelProto()
    if case.model is not None:
        model.CopyFrom(case.model)
        inputs, outputs = list(case.inputs), None
    else:
        model.CopyFrom(standard[case.name].model)
        inputs, outputs = (list(each) for each in standard[case.name].data_sets[0])
    model.ir_version = min(model.ir_version, NEWEST_IR)
    for imported in model.opset_import:
        imported.version = min(imported.version, NEWEST_OPSET) if imported.domain == "" else imported.version
    if case.constants:
        for value, array in zip(list(model.graph.input)[1:], inputs[1:], strict=True):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        del model.graph.input[1:]
        inputs = inputs[:1]
    return model, inputs, outputs


def converted(model: onnx.ModelProto) -> tuple[bytes, bytes]:
    """Return pnnx's conversion of a model; it may crash after writing the pair, so its exit status is ignored."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/model.onnx")
        command = [str(Path(pnnx.__file__).parent / "pnnx"), "model.onnx"]
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
        param = Path(folder, "model.pnnx.param")
        if not param.exists():
            raise SystemExit(f"not converted\n{(done.stdout + done.stderr).decode()[-1500:]}")
        return param.read_bytes(), Path(folder, "model.pnnx.bin").read_bytes()


def written(model: onnx.ModelProto, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[bytes, bytes]:
    """The pair of a model of one operator as pnnx's reader has it: src/pass_onnx.cpp, fuse_constant_as_attribute.cpp."""
    (node,) = model.graph.node
    lines: list[str] = []
    stored: dict[str, np.ndarray] = {}
    notes: dict[str, str] = {}
    numbers: dict[str, str] = {}
    for value, array in zip(model.graph.input, inputs, strict=True):
        numbers[value.name] = str(len(numbers))
        notes[value.name] = _note(numbers[value.name], array)
        lines.append(f"pnnx.Input in{numbers[value.name]} 0 1 {numbers[value.name]} {notes[value.name]}")
    params = [f"{each.name}={_attribute(each)}" for each in node.attribute]
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    wired = []
    for place, name in enumerate(node.input):
        if name in constants:
            fused = _fused(node.op_type, place, constants[name])
            if fused is not None:
                params.append(fused)
                continue
            numbers[name] = str(len(numbers))
            lines.append(_constant(node.op_type, place, name, numbers[name], constants[name], stored))
            notes[name] = _note(numbers[name], constants[name]) if "@data" in lines[-1] else ""
        if name:
            wired.append(name)
    made, results = [], [name for name in node.output if name]
    is_sequence = len(results) != len(outputs)
    for name, array in zip(results, [None] * len(results) if is_sequence else outputs, strict=True):
        numbers[name] = str(len(numbers))
        made.append(name)
        notes[name] = _note(numbers[name], array)
    wires, told = [numbers[name] for name in (*wired, *made)], dict.fromkeys(notes[name] for name in (*wired, *made))
    row = [node.op_type, f"{node.op_type}_0", str(len(wired)), str(len(made)), *wires, *params, *told]
    lines.append(" ".join(row))
    lines += [f"pnnx.Output out{k} 1 0 {numbers[name]} {notes[name]}" for k, name in enumerate(made)]
    text = f"7767517\n{len(lines)} {len(numbers)}\n" + "\n".join(lines) + "\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as pack:
        for name, array in stored.items():
            pack.writestr(zipfile.ZipInfo(name), np.ascontiguousarray(array).tobytes())
    return text.encode(), buffer.getvalue()


def _note(number: str, array: Any) -> str:
    """The annotation of an operand; 0-dim tensors and sequences have none."""
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return ""
    return f"#{number}=({','.join(map(str, array.shape))}){CODES[array.dtype.name]}"


def _attribute(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        array = numpy_helper.to_array(value)
        if array.size != 1 or array.dtype.name not in _KEPT[:3]:
            return "None"
        value = array.item()
    if isinstance(value, (onnx.GraphProto, onnx.TypeProto)):
        return "None"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (int, float)):
        return _number(value)
    return f"({','.join(each.decode() if isinstance(each, bytes) else _number(each) for each in value)})"


def _number(value: Any) -> str:
    if isinstance(value, (int, np.integer)):
        return str(max(min(int(value), 2**31 - 1), -(2**31)))
    return f"{float(np.float32(value)):.8e}"


def _fused(kind: str, place: int, array: np.ndarray) -> str | None:
    """A constant operand as a parameter, where pnnx makes it one."""
    names = _FUSED.get(kind, ())
    if place >= len(names) or names[place] is None:
        return None
    if array.size == 1 and array.dtype.name in _KEPT:
        return f"{names[place]}={_number(array.item())}"
    if array.ndim == 1 and array.dtype.name in _KEPT[:3]:
        return f"{names[place]}=({','.join(map(_number, array.tolist()))})"
    return None


def _constant(
    kind: str, place: int, name: str, number: str, array: np.ndarray, stored: dict[str, np.ndarray]
) -> str:
    if array.size == 1 and place not in _WEIGHTS.get(kind, ()):
        value = array.item() if array.dtype.name in _KEPT else None
        shown = value if value is None or isinstance(value, bool) else _number(value)
        return f"pnnx.Expression {name} 0 1 {number} expr={shown}"
    shape = array.shape or (1,)
    stored[f"{name}.data"] = array
    note = f"({','.join(map(str, shape))}){CODES[array.dtype.name]}"
    return f"pnnx.Attribute {name} 0 1 {number} @data={note} #{number}={note}"


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, (list, tuple)):
        return [array for each in value for array in flat(each)]
    return [] if value is None else [np.asarray(value)]


def answers(case: Case, model: onnx.ModelProto, inputs: Sequence[Any], standard: list[Any] | None) -> list[np.ndarray]:
    """The standard's outputs, after onnxruntime has given the same; onnxruntime's where the standard has none."""
    expected = None if standard is None else flat(standard)
    if not case.runtime:
        if expected is None:
            raise SystemExit(f"{case.id}: there is no answer")
        return expected
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    found = flat(session.run(None, dict(zip(names, map(np.asarray, inputs), strict=True))))
    if expected is None:
        return found
    for mine, theirs in zip(expected, found, strict=True):
        wide = np.complex128 if mine.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(theirs.astype(wide), mine.astype(wide), case.rtol, case.atol, err_msg=case.id)
    return expected


def recorded(case: Case, standard: dict[str, Any]) -> dict[str, bytes]:
    """The files of one case."""
    model, inputs, known = prepared(case, standard)
    outputs = answers(case, model, inputs, known)
    param, weights = written(model, inputs, outputs) if case.written else converted(model)
    arrays = {f"in_{k}": np.asarray(each) for k, each in enumerate(inputs)}
    arrays |= {f"out_{k}": each for k, each in enumerate(outputs)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    dtypes = {key: array.dtype.name for key, array in arrays.items()}
    facts = {"dtypes": dtypes, "sets": 1, "rtol": case.rtol, "atol": case.atol}
    return {
        f"{case.id}/model.pnnx.param": param,
        f"{case.id}/model.pnnx.bin": weights,
        f"{case.id}/arrays.npz": buffer.getvalue(),
        f"{case.id}/sample.json": json.dumps(facts).encode(),
    }


def record(family: str, only: str | None) -> None:
    cases: list[Case] = importlib.import_module(family).CASES
    path, kept, standard = HERE / f"{family}.zip", {}, standard_cases()
    problems: list[str] = []
    names = [case.id for case in cases]
    if len(set(names)) != len(names):
        raise SystemExit(f"{family}: cases repeat: {sorted({n for n in names if names.count(n) > 1})}")
    if path.exists():
        with zipfile.ZipFile(path) as old:
            kept = {name: old.read(name) for name in old.namelist()}
    for case in cases:
        is_wanted = only is None or only in case.id
        if is_wanted or f"{case.id}/sample.json" not in kept:
            try:
                kept |= recorded(case, standard)
            except (Exception, SystemExit) as problem:
                problems.append(f"{case.id}: {' '.join(str(problem).split())[:300]}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in sorted(kept.items()):
            if name.split("/")[0] in names:
                info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                pack.writestr(info, content)
    print(*problems, sep="\n")
    print(f"{family}: {len(names)} cases, {len(problems)} without an answer, {path.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--only", help="record only cases whose name contains this, and new ones")
    options = parser.parse_args()
    sys.path[:0] = [str(HERE)]
    for family in options.families:
        record(family, options.only)


if __name__ == "__main__":
    # Families import Case from this module, which runs as __main__ here.
    sys.modules["record_onnx"] = sys.modules["__main__"]
    main()
