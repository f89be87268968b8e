"""Samples of element-wise functions as optimisation level 0, and other versions of the converter, spell them."""

from __future__ import annotations

import torch
from record import Sample
from written import written

X = torch.tensor([[0.3, -0.7, 0.9], [0.05, -0.2, 0.6]])
Y = torch.tensor([0.5, -1.5, 2.0])
BIG = torch.tensor([[1.5, 2.5, 30.0]])
INTS = torch.tensor([[7, -7, 4], [0, 3, -9]])
TRUTHS, NARROW = torch.tensor([True, False, True]), torch.tensor([2, -1, 1], dtype=torch.int32)
OTHERS = torch.tensor([2, 3, -4])
BOOLS = torch.tensor([[True, False, True], [False, False, True]])

UNARY = (
    "abs", "absolute", "neg", "negative", "sign", "square", "ceil", "floor", "round", "trunc", "fix", "exp", "expm1",
    "erf", "sin", "cos", "tan", "asin", "arcsin", "acos", "arccos", "atan", "arctan", "sinh", "cosh", "tanh", "asinh",
    "arcsinh", "atanh", "arctanh", "reciprocal", "positive", "frac", "exp2", "erfc", "erfinv", "sinc", "deg2rad",
    "rad2deg", "i0", "digamma", "lgamma",
)  # fmt: skip
ABOVE_ONE = ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "acosh", "arccosh")
SPECIAL = ("entr", "ndtr")
BINARY = (
    "mul", "multiply", "remainder", "fmod", "floor_divide", "atan2", "logaddexp", "maximum", "minimum", "hypot",
    "copysign", "logaddexp2", "xlogy", "heaviside", "ldexp", "fmax", "fmin",
)  # fmt: skip
INTEGRAL = ("gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor")
TESTS = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "signbit", "logical_not")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
LEVEL_0_BITS = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
                "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}  # fmt: skip


def spelled(room: str) -> list[Sample]:
    """One sample of many functions, in the file as ``torch.name`` or ``aten::name``."""
    groups = [
        ("unary", UNARY, {"x": X}),
        ("above_one", ABOVE_ONE, {"x": BIG}),
        ("binary", BINARY, {"x": X, "y": Y}),
        ("pow", ("pow",), {"x": BIG, "y": Y}),
        ("integral", INTEGRAL, {"x": INTS, "y": OTHERS}),
        ("tests", TESTS, {"x": X}),
        ("comparisons", COMPARISONS, {"x": INTS, "y": OTHERS}),
        ("bitwise_not", ("bitwise_not",), {"x": INTS}),
        ("angle", ("angle", "sgn", "conj"), {"x": torch.complex(X, X + 1)}),
    ]
    samples = []
    for group, names, inputs in groups:
        lines = [f"{room}{name} {' '.join(inputs)} -> {name}" for name in names]
        samples.append(
            Sample(
                f"{group}_{'raw' if room == 'aten::' else 'torch'}",
                lambda *tensors, names=names: tuple(getattr(torch, name)(*tensors) for name in names),
                tuple(inputs.values()),
                param=written(inputs, *lines),
                rtol=2e-5,
            )
        )
    return samples


def special(room: str) -> Sample:
    """Functions of torch.special in one spelling."""
    lines = [f"{room}special_{name} x -> {name}" for name in SPECIAL] + [f"{room}special_xlog1py x x -> xlog1py"]
    return Sample(
        f"special_{'raw' if room == 'aten::' else 'torch'}",
        lambda x: (*(getattr(torch.special, name)(x) for name in SPECIAL), torch.special.xlog1py(x, x)),
        (X,),
        param=written({"x": X}, *lines),
        rtol=2e-5,
    )


def four_operations(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.add(x, x), torch.add(x, i, alpha=2), torch.sub(x, 3), torch.sub(x, x, alpha=0.5), torch.rsub(x, i, alpha=2),
        torch.div(i, 2), torch.div(x, 2, rounding_mode="floor"), torch.div(x, 0.25, rounding_mode="trunc"),
        torch.div(i, 2, rounding_mode="trunc"), torch.div(i, -2, rounding_mode="floor"),
    )  # fmt: skip


def four_operations_written(room: str) -> str:
    return written(
        {"x": X, "i": INTS},
        f"{room}add x x 1 -> a", f"{room}add x i 2 -> b", f"{room}sub x 3 1 -> c", f"{room}sub x x 0.5 -> d",
        f"{room}rsub x i 2 -> e", f"{room}div i 2 -> f", f"{room}div x 2 floor -> g", f"{room}div x 0.25 trunc -> h",
        f"{room}div i 2 trunc -> k", f"{room}div i -2 floor -> l",
    )  # fmt: skip


SAMPLES = [
    *spelled("aten::"),
    *spelled("torch."),
    special("aten::"),
    special("torch."),
    Sample("four_operations_raw", four_operations, (X, INTS), param=four_operations_written("aten::")),
    Sample("four_operations_torch", four_operations, (X, INTS), param=four_operations_written("torch.")),
    Sample(
        "bools_divided_towards_zero",
        lambda b, i: (torch.div(b, i, rounding_mode="trunc"), torch.div(i, True, rounding_mode="trunc")),
        (TRUTHS, NARROW),
        param=written({"b": TRUTHS, "i": NARROW}, "torch.div b i trunc -> q", "torch.div i True trunc -> r"),
    ),
    Sample(
        "other_names",
        lambda x: (torch.subtract(x, 1), torch.divide(x, 3), torch.true_divide(x, 3)),
        (X,),
        param=written({"x": X}, "aten::subtract x 1 1 -> a", "aten::divide x 3 -> b", "aten::true_divide x 3 -> c"),
    ),
    Sample(
        "bits_of_level_0",
        lambda i: tuple(getattr(torch, name)(i, 3) for name in LEVEL_0_BITS.values()),
        (INTS,),
        param=written({"i": INTS}, *(f"aten::{name} i 3 -> {name}" for name in LEVEL_0_BITS)),
    ),
    Sample(
        "shifts_raw",
        lambda i: (torch.bitwise_left_shift(i, 2), torch.bitwise_right_shift(i, 1)),
        (INTS,),
        param=written({"i": INTS}, "aten::bitwise_left_shift i 2 -> a", "aten::bitwise_right_shift i 1 -> b"),
    ),
    Sample(
        "logic_of_bools",
        lambda b: (b & ~b, b | b[0], b ^ b[1]),
        (BOOLS,),
        param=written(
            {"b": BOOLS},
            "aten::bitwise_not b -> n",
            "aten::__and__ b n -> out_and",
            "Tensor.select b -> b0 dim=0 index=0",
            "Tensor.select b -> b1 dim=0 index=1",
            "aten::__or__ b b0 -> out_or",
            "aten::__xor__ b b1 -> out_xor",
        ),  # fmt: skip
    ),
]
