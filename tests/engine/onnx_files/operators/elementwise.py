"""Element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt, stored

_SPECIAL = np.array([-np.inf, -7.5, -1.0, -0.5, 0.0, 0.3, 1.5, 2.5, 9.0, np.inf, np.nan], np.float32)
_POSITIVE = ("Sqrt", "Log", "Acosh")
_SMALL = ("Asin", "Acos", "Atanh")


@of("Abs", "Neg", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Floor", "Ceil", "Round", "Sign",
    "Reciprocal", "Erf", "Sqrt", "Log", "Asin", "Acos", "Acosh", "Atanh", "Relu", "Sigmoid", "Tanh", "Softplus",
    "Softsign", "HardSwish", "Mish", "IsNaN", "Identity")  # fmt: skip
def unary(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    x = r.p(2, 3) + 0.6 if type in _POSITIVE else np.tanh(r.f(2, 3)) if type in _SMALL else r.f(2, 3) * 2
    yield ex(x)
    yield ex(x[0, 0])
    if type in ("IsNaN", "Identity", "Relu", "Abs", "Sign", "Round", "Floor", "Ceil"):
        yield ex(_SPECIAL[:-1] if type == "Sign" else _SPECIAL)  # what no number's sign is, nothing says
    if type in ("Abs", "Neg", "Sign") and version >= 6:
        yield ex(r.i(2, 3))
        yield ex(r.i(2, 3, dtype="int32"))
    if type == "Relu" and version >= 14:
        yield ex(r.i(2, 3, dtype="int32"))


@of("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "Swish")
def with_alpha(type: str, version: int) -> Iterator[Example]:
    for alpha in (None, 0.3, 2.0):
        yield ex(Draws().f(2, 3) * 2, alpha=alpha)


@of("HardSigmoid", "Selu", "Shrink", "IsInf", "Gelu")
def with_more(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(2, 3) * 4
    options = {
        "HardSigmoid": [{"alpha": 0.1, "beta": 0.4}, {"alpha": 0.3}, {"beta": 0.2}],
        "Selu": [{"alpha": 1.2, "gamma": 0.8}, {"gamma": 2.0}],
        "Shrink": [{"bias": 0.5}, {"lambd": 1.5}, {"bias": 0.2, "lambd": 0.1}],
        "IsInf": [{"detect_negative": 0}, {"detect_positive": 0}],
        "Gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    }[type]
    for given in ({}, *options):
        yield ex(_SPECIAL if type == "IsInf" else x, **given)


@of("PRelu")
def prelu(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.f(2, 3, 4), stored(r.p(3) if version < 7 else r.p(3, 1)))
    yield ex(r.f(2, 3, 4), stored(r.p(1)))
    yield ex(r.f(2, 3, 4), r.p(3, 1) if version >= 7 else r.p(1))


@of("Clip")
def clip(type: str, version: int) -> Iterator[Example]:
    if version < 11:
        for given in ({}, {"min": -1.0}, {"max": 2.0}, {"min": 0.0, "max": 6.0}):
            yield ex(_SPECIAL, **given)
        return
    x = _SPECIAL[1:-2]  # a bound that is left out is the largest number in onnxruntime, and none in the reference
    for low, high in ((np.float32(-1), np.float32(2)), (np.float32(0), np.float32(6))):
        yield ex(x, opt(stored(low)), opt(stored(high)))
        yield ex(x, opt(low), opt(high))
    if version >= 12:
        for dtype in ("int32", "int64", "uint8"):
            y = np.array([0, 3, 100], dtype)
            yield ex(y, opt(stored(np.array(2, dtype))), opt(np.array(50, dtype)))


@of("Add", "Sub", "Mul", "Div")
def arithmetic(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.f(2, 3, 4), r.p(2, 3, 4))
    yield from _broadcast(version, r)
    if version >= 7:
        yield ex(r.i(2, 3), r.i(2, 3, low=1))
        yield ex(r.i(2, 3, dtype="int32"), stored(r.i(3, low=1, dtype="int32")))
    if version >= 14:
        yield ex(r.u8(2, 3), np.full(3, 7, np.uint8))


def _broadcast(version: int, r: Draws) -> Iterator[Example]:
    """One operand less wide than the other, as the version has it."""
    if version >= 7:
        yield ex(r.f(2, 3, 4), stored(r.p(3, 1)))
        yield ex(r.f(4), r.p(3, 1))
        return
    yield ex(r.f(2, 3, 4), r.p(4), broadcast=1)
    yield ex(r.f(2, 3, 4), stored(r.p(3)), broadcast=1, axis=1)
    yield ex(r.f(2, 3, 4), r.p(2, 3), broadcast=1, axis=0)


@of("Pow")
def power(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.p(2, 3), r.f(2, 3))
    if version < 7:
        yield ex(r.p(2, 3, 4), r.f(3), broadcast=1, axis=1)
        return
    yield ex(r.f(2, 3), stored(np.float32(2)))
    if version >= 12:
        yield ex(r.i(2, 3), r.i(2, 3, low=0, high=4))
        yield ex(r.f(2, 3), stored(np.array(3)))
        yield ex(r.i(2, 3), stored(np.float32(2)))


@of("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def comparisons(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    if type != "Equal" or version >= 11:
        yield ex(np.round(r.f(2, 3, 4)), np.round(r.f(2, 3, 4)))
    if type == "Equal" and version < 7:
        yield ex(r.i(2, 3, 4), r.i(4), broadcast=1)
        yield ex(r.i(2, 3, 4), r.i(3), broadcast=1, axis=1)
    elif version < 7:
        yield ex(np.round(r.f(2, 3, 4)), np.round(r.f(3)), broadcast=1, axis=1)
    elif type == "Equal" or version >= 9:
        yield ex(r.i(2, 3), r.i(3))


@of("And", "Or", "Xor")
def logic(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.b(2, 3), r.b(2, 3))
    yield ex(r.b(2, 3), r.b(2), broadcast=1, axis=0) if version < 7 else ex(r.b(2, 3), r.b(3))


@of("Not")
def negation(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().b(2, 3))


@of("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def bits(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for dtype in ("int32", "uint8"):
        one, other = (r.i(2, 3, low=0, high=100, dtype=dtype) for _ in range(2))
        yield ex(one) if type == "BitwiseNot" else ex(one, other[0])


@of("BitShift")
def shifts(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for direction in ("LEFT", "RIGHT"):
        yield ex(r.u8(2, 3), r.i(2, 3, low=0, high=8, dtype="uint8"), direction=direction)
        yield ex(r.i(2, 3, low=0, high=9, dtype="uint32"), r.i(3, low=0, high=8, dtype="uint32"), direction=direction)


@of("Mod")
def remainders(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.i(2, 3), r.i(3, low=1))
    yield ex(r.i(2, 3), np.array([-3, 2, -2]))
    yield ex(r.i(2, 3), np.array([-3, 2, -2]), fmod=1)
    yield ex(r.f(2, 3), r.p(3), fmod=1)


@of("Max", "Min", "Sum", "Mean")
def of_many(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.f(2, 3))
    yield ex(r.f(2, 3), r.f(2, 3), r.f(2, 3))
    if version >= 8:
        yield ex(r.f(2, 3), r.f(3), r.f(2, 1))
    if version >= 12 and type in ("Max", "Min"):
        yield ex(r.i(2, 3), r.i(2, 3))
        yield ex(r.u8(2, 3), r.u8(3))


@of("Where")
def where(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.b(2, 3), r.f(2, 3), r.f(3))
    yield ex(r.b(3), r.i(2, 3), stored(np.array(4)))


_CODES = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "half": 10, "double": 11}


@of("Cast")
def cast(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    if version < 6:
        for to in ("FLOAT", "INT32", "INT64", "DOUBLE", "BOOL"):
            yield ex(r.f(2, 3) * 3, to=to)
        return
    for to in ("float", "int32", "int64", "bool", "half", "double"):
        yield ex(r.f(2, 3) * 3, to=_CODES[to])
        yield ex(r.i(2, 3), to=_CODES[to])
    yield ex(np.array([1.5, 300, -2, 255.9], np.float32), to=_CODES["int32"])
    if version >= 9:
        yield ex(np.array(["1.5", "-2"], object), to=1)
    if version >= 19:
        x = np.array([0, 1.1, -3.3, 500, -1e6, np.inf, np.nan], np.float32)
        for to in (17, 18, 19, 20):
            for saturate in (None, 0, 1):
                yield ex(x, to=to, saturate=saturate)
    if version >= 21:
        yield ex(np.array([0, 1, 7, 3], np.float32), to=21)
        yield ex(np.array([0, 1, 7, -8], ml_dtypes.int4), to=1)


@of("CastLike")
def cast_like(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for dtype in (np.float32, np.int32, np.int64, np.float64, np.bool_):
        yield ex(r.f(2, 3) * 3, stored(np.zeros(1, dtype)))
        yield ex(r.i(2, 3), np.zeros(1, dtype))


@of("BitCast")
def bit_cast(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 3), to=_CODES["int32"])


@of("Dropout")
def dropout(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(2, 3)
    if version < 7:
        yield ex(x, is_test=1, outputs=2, maybe=1)
        yield ex(x, is_test=1, ratio=0.3)
    elif version < 12:
        yield ex(x, outputs=2 if version >= 10 else 1, maybe=1 if version >= 10 else 0)
        yield ex(x, ratio=0.3)
    else:
        yield ex(x, opt(stored(np.float32(0.3))), opt(stored(np.array(False))), outputs=2, maybe=1)
        yield ex(x, opt(stored(np.float32(0))), opt(stored(np.array(True))), outputs=2, maybe=1, valid=_draws_nothing)
        yield ex(x, opt(np.float32(0.3)), opt(np.array(False)), outputs=2, maybe=1)


def _draws_nothing(given: frozenset[int]) -> bool:
    """Return whether a training dropout has a ratio of 0."""
    return not (2 in given and 1 not in given)


@of("CumSum", "CumProd")
def scans(type: str, version: int) -> Iterator[Example]:
    for given in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
        yield ex(Draws().f(2, 3), stored(np.array(1)), **given)
        yield ex(Draws().f(2, 3), np.array(-2, np.int32), **given)
