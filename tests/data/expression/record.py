"""Record what PyTorch answers to every expression function: writes answers.json and answers.npz beside this file.

    python record.py

answers.json: one row per case, ``[expression, operand names, dtype code, shape, offset]``, or
``[expression, operand names, null]`` where PyTorch refuses. answers.npz: every operand by name, and per dtype code
``out.<code>``, all results of that dtype one after the other, found by offset. bfloat16 travels as uint16 bits.
"""

from __future__ import annotations

import json
import math
import operator
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i64", "i32", "u8")
DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "c32": torch.complex32,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
RECORDED = ("f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool", "c64")

# fmt: off
UNARY_NAMES = [
    "abs", "neg", "sign", "square", "ceil", "floor", "round", "trunc", "sqrt", "rsqrt", "reciprocal", "exp", "expm1",
    "log", "log10", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh",
]
# fmt: on
UNARY: dict[str, Callable[..., Any]] = {name: getattr(torch, name) for name in UNARY_NAMES}
BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "fmod": torch.fmod,
    "pow": operator.pow,
    "atan2": torch.atan2,
    "logaddexp": torch.logaddexp,
    "max": torch.max,
    "min": torch.min,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
MIXED = ("add", "div", "pow", "floor_divide", "maximum", "and")
SCALARS = (3, -1, 0.1, 2.5)
EXPONENTS = (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7)

Operands = dict[str, torch.Tensor]
Case = tuple[str, list[str], torch.Tensor | None]


def operands() -> Operands:
    """Return operands of each dtype.

    They are x and y (vectors), a (column) and b (row) for every pair, d (a row without zeros), v (three plain values as
    a column), s, t and h (0-dim).
    """
    torch.manual_seed(0)
    made: Operands = {}
    for code in FLOATS:
        made |= named(code, float_samples(code))
    for code in INTS:
        made |= named(code, int_samples())
    made |= named("bool", {"x": [True, False, True], "y": [True, True, False], "a": [[True], [False]],
                           "b": [[True, False]], "d": [[True]],
                           "v": [[True], [False], [True]], "s": True, "t": False})  # fmt: skip
    made |= named("c64", complex_samples())
    return made


def named(code: str, samples: dict[str, Any]) -> Operands:
    return {f"{name}.{code}": torch.tensor(values).to(DTYPES[code]) for name, values in samples.items()}


def float_samples(code: str) -> dict[str, Any]:
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, -3.5, 7.0]
    extreme = [1e-3, -1e-3, 1e-6, 30.0, -30.0, 88.0, 300.0, -300.0] + ([1e-30, 1e30] if code != "f16" else [])
    pairs = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -3.5, 0.3]
    return {
        "x": special + extreme + (torch.randn(20) * 2).tolist() + torch.rand(8).tolist(),
        "y": (torch.randn(len(special + extreme) + 28) * 3).tolist(),
        "a": [[value] for value in [*pairs, *(torch.randn(6) * 3).tolist()]],
        "b": [[*pairs, *(torch.randn(6) * 3).tolist()]],
        "d": [[1.0, -2.0, 0.3, 7.5]],
        "v": [[0.7], [-3.0], [12.5]],
        "s": 1.7,
        "t": -0.6,
        "h": 0.5,
    }


def int_samples() -> dict[str, Any]:
    wide = [0, 1, 2, 3, 5, 7, 10, 31, 63, 100, -1, -2, -3, -7, -100, 127, -128]
    return {
        "x": wide,
        "y": [3, 2, 1, 4, 5, 1, 2, 3, 9, 7, 6, 2, 3, 5, 7, 4, 3],
        "a": [[value] for value in wide],
        "b": [[0, 1, 2, 3, 8, 31, 32, 63, 64, 70, -1, -2, -9]],
        "d": [[1, 2, 3, 7, -1, -2, -5]],
        "v": [[2], [-3], [120]],
        "s": 5,
        "t": 3,
    }


def complex_samples() -> dict[str, Any]:
    x = [1 + 2j, -1.5 + 0.5j, 0.3 - 0.7j, -2 - 1j, 0.5 + 0j, 2j, 3 - 0.1j, -0.2 + 0.9j]
    return {
        "x": x,
        "y": x[::-1],
        "a": [[v] for v in x],
        "b": [x],
        "d": [x],
        "v": [[v] for v in x[:3]],
        "s": 0.5 - 1j,
        "t": 1 + 1j,
    }


def answer(text: str, names: list[str], function: Callable[..., Any], *values: Any) -> Case | None:
    """One case; None where Python's spelling has no such overload, which says nothing about the function."""
    try:
        return text, names, function(*values)
    except TypeError:
        return None
    except RuntimeError:
        return text, names, None


def unary_cases(given: Operands) -> list[Case | None]:
    return [
        answer(f"{name}(@0)", [operand], function, given[operand])
        for name, function in UNARY.items()
        for code in RECORDED
        for operand in (f"x.{code}", f"s.{code}")
    ]


def binary_cases(given: Operands) -> list[Case | None]:
    pairs = [("x", "y"), ("y", "x"), ("x", "s"), ("s", "x"), ("s", "t"), ("a", "d")]
    return [
        answer(f"{name}(@0,@1)", both, function, *(given[operand] for operand in both))
        for name, function in BINARY.items()
        for code in RECORDED
        for pair in ([*pairs, ("a", "b")])
        for both in ([f"{pair[0]}.{code}", f"{pair[1]}.{code}"],)
    ]


def scalar_cases(given: Operands) -> list[Case | None]:
    cases = []
    for name, function in BINARY.items():
        if name in ("max", "min"):  # torch.max(x, 3) reduces dimension 3
            continue
        for code in RECORDED:
            operand = f"x.{code}"
            for value in EXPONENTS if name == "pow" else SCALARS:
                cases.append(answer(f"{name}(@0,{value})", [operand], function, given[operand], value))
                if name != "div":  # Python's 2.5 / x is reciprocal(x) * 2.5, and is exported as such
                    cases.append(answer(f"{name}({value},@0)", [operand], function, value, given[operand]))
            cases.append(answer(f"{name}(@0,1-2j)", [operand], function, given[operand], 1 - 2j))
    return cases


def root_cases(given: Operands) -> list[Case | None]:
    """A 0-dim 0.5 is not a Python 0.5: the power of -inf and -0.0 tells them apart."""
    return [
        answer("pow(@0,@1)", names, operator.pow, *(given[name] for name in names))
        for code in FLOATS
        for names in ([f"x.{code}", f"h.{code}"], [f"a.{code}", f"h.{code}"])
    ]


def mixed_cases(given: Operands) -> list[Case | None]:
    pairs = [(left, right) for left in RECORDED for right in RECORDED if left != right]
    return [
        answer(f"{name}(@0,@1)", names, BINARY[name], *(given[operand] for operand in names))
        for name in MIXED
        for left, right in pairs
        for names in ([f"s.{left}", f"t.{right}"], [f"d.{left}", f"t.{right}"], [f"t.{left}", f"d.{right}"],
                      [f"v.{left}", f"d.{right}"])
    ]  # fmt: skip


def composite_cases(given: Operands) -> list[Case | None]:
    rows: list[tuple[str, Callable[..., Any]]] = [
        ("sqrt(div(add(mul(abs(@0),2),abs(@1)),12))", lambda x, y: torch.sqrt((x.abs() * 2 + y.abs()) / 12)),
        ("add(sin(@0),mul(cos(@1),sqrt(add(abs(@1),1))))", lambda x, y: x.sin() + y.cos() * (y.abs() + 1).sqrt()),
        ("sub(mul(@0,2),mul(@1,0.25))", lambda x, y: x * 2 - y * 0.25),
        ("mul(reciprocal(add(exp(neg(@0)),1)),@1)", lambda x, y: (torch.exp(-x) + 1).reciprocal() * y),
        ("mul(mul(@0,0.5),add(erf(div(@0,1.41421354)),1))", lambda x: x * 0.5 * (torch.erf(x / 1.41421354) + 1)),
        ("pow(sub(@0,0.5),2)", lambda x: (x - 0.5) ** 2),
    ]
    return [
        answer(text, names, function, *(given[name] for name in names))
        for text, function in rows
        for code in RECORDED
        for pair in (("s", "y"), ("y", "t"))
        for names in ([f"{name}.{code}" for name in pair[: 1 + ("@1" in text)]],)
    ]


def refuses_in_pytorch_by_accident(case: Case) -> bool:
    """complex32 is not in PNNX graphs: the engine widens it, PyTorch mostly refuses it."""
    text, names, result = case
    return (result is not None and result.dtype == torch.complex32) or (
        result is None and "j" in text and names[0].endswith(".f16")
    ) or (result is None and {name.split(".")[1] for name in names} == {"f16", "c64"})  # fmt: skip


def bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
    return flat.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else flat.numpy()


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    given = operands()
    makers = (unary_cases, binary_cases, scalar_cases, root_cases, mixed_cases, composite_cases)
    cases = [case for maker in makers for case in maker(given) if case is not None]
    rows: list[list[Any]] = []
    parts: dict[str, list[np.ndarray[Any, Any]]] = {}
    offsets: dict[str, int] = {}
    for text, names, result in (case for case in cases if not refuses_in_pytorch_by_accident(case)):
        if result is None:
            rows.append([text, names, None])
            continue
        code = CODES[result.dtype]
        rows.append([text, names, code, list(result.shape), offsets.get(code, 0)])
        parts.setdefault(code, []).append(bits(result))
        offsets[code] = offsets.get(code, 0) + result.numel()
    arrays = {name: bits(tensor).reshape(tensor.shape) for name, tensor in given.items()}
    arrays |= {f"out.{code}": np.concatenate(flat) for code, flat in parts.items()}
    np.savez_compressed(HERE / "answers.npz", **arrays)
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (HERE / "answers.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(rows)} cases, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
