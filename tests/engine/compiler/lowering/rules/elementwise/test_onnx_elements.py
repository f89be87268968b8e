"""Element-wise operators, scans and orders under ONNX's names: the reference's answers, dtypes included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.errors import EngineError
from engine.pnnx import Operator
from tests.engine.compiler.lowering.rules.elementwise.test_typed_maps import values
from tests.engine.graph.build import built, op

F32 = np.dtype(np.float32)
EXACT, CLOSE = 0.0, 3e-6


def check(inputs: list[np.ndarray], *operators: Operator, tolerance: float = EXACT) -> None:
    """Operators of all inputs, each with results of its own, have kernels and give what the reference gives."""
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    results = [name for each in operators for name in each.outputs]
    ends = [op("pnnx.Output", f"out_{name}", name) for name in results if not name.startswith("const")]
    net = built(*ports, *operators, *ends, **specs)
    session = Session(net, cache=None, backend="compiled")
    for found, wanted in zip(session.run(inputs), Session(net, backend="reference").run(inputs), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance / 10)
    assert {row["name"] for row in session.describe()["operators"] if row.get("kernel") == "reference"} == set()


def numbered(*given: tuple[str, dict[str, Any]], operands: str = "0") -> list[Operator]:
    return [op(type_, f"it_{k}", operands, f"result_{k}", **params) for k, (type_, params) in enumerate(given)]


def awkward() -> np.ndarray:
    x = values("float32", (3, 4, 17))
    x[0, 0, :4] = np.inf, -np.inf, 0.0, -0.0
    return x


def test_activations_and_questions() -> None:
    x = awkward()
    check(
        [x],
        *numbered(
            ("HardSigmoid", {}), ("Swish", {"alpha": 1.5}), ("ThresholdedRelu", {"alpha": 0.3}),
            ("Shrink", {"lambd": 0.3, "bias": 0.1}), ("Clip", {"min": -0.5, "max": 0.5}), ("Clip", {"max": 0.5}),
            ("torch.sgn", {}), ("torch.signbit", {}), ("IsNaN", {}), ("IsInf", {"detect_negative": 0}),
            ("Cast", {"to": 9}), ("Cast", {"to": 11}),
        ),
        tolerance=CLOSE,
    )  # fmt: skip


def test_functions_of_two_operands() -> None:
    x, y = awkward(), values("float32", (3, 4, 17))
    y[0, 0, :5] = np.inf, -np.inf, np.inf, 0.0, -1.0
    pairs = numbered(
        ("Mean", {}), ("Mod", {"fmod": 1}), ("torch.logaddexp2", {}), ("torch.special_xlog1py", {}), ("PRelu", {}),
        operands="0 1",
    )  # fmt: skip
    check([x, y], *pairs, tolerance=CLOSE)
    check([np.abs(x), y], *numbered(("Pow", {}), operands="0 1"), tolerance=CLOSE)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_divided_by_a_number(dtype: str) -> None:
    x = values(dtype, (3, 17))
    for number in (3, 1, 64, *(() if dtype == "uint8" else (-5,))):
        check(
            [x],
            *numbered(
                ("torch.remainder", {"other": number}), ("torch.fmod", {"other": number}),
                ("torch.floor_divide", {"other": number}), ("torch.div", {"other": number, "rounding_mode": "floor"}),
            ),
        )  # fmt: skip


def test_integers_divided_by_the_number_0_are_left_to_the_reference() -> None:
    net = built(
        op("pnnx.Input", "in", "", "0"),
        op("torch.fmod", "it", "0", "1", other=0),
        op("torch.add", "more", "0", "2", other=1),
        op("pnnx.Output", "out", "1"),
        op("pnnx.Output", "out_1", "2"),
        _0=TensorSpec((5,), np.dtype(np.int64)),
    )
    session = Session(net, cache=None)
    with pytest.raises(EngineError, match="division by zero"):
        session.run([np.full(5, np.iinfo(np.int64).min)])
    rows = {row["name"]: row.get("kernel") for row in session.describe()["operators"]}
    assert rows["it"] == "reference"


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
def test_scans_orders_and_bits(dtype: str) -> None:
    x = np.nan_to_num(values(dtype, (3, 4, 17)))
    check(
        [x],
        *numbered(("CumSum", {"axis": 1}), ("CumProd", {"axis": -1}), ("CumSum", {"axis": 1, "reverse": 1})),
        tolerance=CLOSE,
    )
    if dtype != "int64":  # numpy sorts elements of 64 bits
        check(
            [x],
            op("TopK", "top", "0", "values places", k=3, axis=-1 if dtype == "int8" else 1),
            op("TopK", "last", "0", "low", k=4, largest=0),
        )
    if dtype.startswith("int"):
        counts = np.tile(np.array([0, 1, 7, 8, 31, 63, 64, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1], dtype), (3, 4, 1))
        check([x, counts], *numbered(("BitShift", {"direction": "LEFT"}), operands="0 1"))


def test_sums_of_magnitudes_and_squares() -> None:
    x = np.abs(np.nan_to_num(values("float32", (3, 4, 17))))
    kinds = "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"
    check([x], *numbered(*((kind, {"axes": (1,)}) for kind in kinds)), tolerance=CLOSE)
    check([x], *numbered(*((kind, {"axes": (0, 2), "keepdims": 0}) for kind in kinds)), tolerance=CLOSE)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float64"])
def test_places_of_extremes_of_any_dtype(dtype: str) -> None:
    x = values(dtype, (3, 5, 37)) if dtype != "int16" else values("int32", (3, 5, 37)).astype(dtype)
    places = numbered(
        *((f"torch.arg{kind}", given) for kind in ("max", "min") for given in (
            {"dim": -1, "keepdim": False}, {"dim": 0, "keepdim": True}, {},
        )),
    )  # fmt: skip
    check(
        [x],
        *places,
        op("torch.max", "top", "0", "high where", dim=1, keepdim=False),
        op("torch.min", "all", "0", "low"),
    )
