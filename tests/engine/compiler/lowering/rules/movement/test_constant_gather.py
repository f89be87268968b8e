"""Elements moved in ways that strides cannot say: the reference's answers, bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.compiler.lowering.rules.indexing.test_gather import kernel_of
from tests.engine.graph.build import INPUT, built, op

RANDOM = np.random.default_rng(37)
ONE: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("torch.roll", (3, 5, 7), {"dims": None, "shifts": (4,)}),
    ("torch.repeat_interleave", (3, 5), {"repeats": 3, "dim": 1}),
    ("torch.as_strided", (4, 6), {"size": (3, 3), "stride": (5, 2), "storage_offset": 1}),
    ("F.pixel_unshuffle", (3, 4, 6), {"downscale_factor": 2}),
    ("nn.ChannelShuffle", (6, 3, 4), {"groups": 3}),
    ("F.pad", (1, 2, 5, 6), {"pad": (2, -1, 1, 1), "mode": "reflect"}),
    ("nn.ReplicationPad2d", (1, 2, 5, 6), {"padding": (-1, 2, 0, 3)}),
    ("torch.fft.fftshift", (5, 4), {"dim": None}),
    ("torch.tril", (3, 4, 6), {"diagonal": 1}),
]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "int16"])
@pytest.mark.parametrize(("type_", "shape", "given"), ONE, ids=[row[0] for row in ONE])
def test_what_strides_cannot_say_is_gathered(type_: str, shape: tuple[int, ...], given: Any, dtype: str) -> None:
    x = RANDOM.integers(-99, 99, shape)
    assert kernel_of(type_, [(x % 2 if dtype == "bool" else x).astype(dtype)], **given) != "reference"


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "uint8"])
def test_tensors_are_joined(dtype: str) -> None:
    def numbers(*shape: int) -> np.ndarray:
        return RANDOM.integers(-99, 99, shape).astype(dtype)

    assert kernel_of("aten::hstack", [numbers(2, 3), numbers(2, 1)]) == "gather"
    assert kernel_of("aten::dstack", [numbers(3), numbers(3)]) == "gather"
    assert kernel_of("aten::column_stack", [numbers(3), numbers(3, 2)]) == "gather"
    assert kernel_of("aten::block_diag", [numbers(2, 3), numbers(4), numbers(1, 1)]) == "gather"
    assert kernel_of("aten::cartesian_prod", [numbers(2), numbers(3)]) == "gather"


def test_padding_with_any_number_is_gathered() -> None:
    x = RANDOM.integers(-99, 99, (2, 3)).astype(np.int64)
    for value in (7, 1, -1, 0):
        assert kernel_of("F.pad", [x], pad=(1, 1), mode="constant", value=value) == "gather"
    for number in (0.25, -0.0, 1.0, np.inf):
        assert (
            kernel_of("F.pad", [x.astype(np.float32)], pad=(0, 2, 1, 0), value=number, mode="constant") != "reference"
        )
    assert kernel_of("F.pad", [x.astype(np.float64)], pad=(1, 1), mode="constant", value=np.nan) == "reference"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64"])
def test_fractions_around_a_tensor_stay_fractions_in_every_dtype(dtype: str) -> None:
    x = RANDOM.standard_normal((2, 3)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    expected = np.pad(x, [(0, 0), (2, 1)], constant_values=0.3)
    net = built(
        INPUT, op("F.pad", "it", "0", "1", pad=(2, 1), mode="constant", value=0.3), op("pnnx.Output", "out", "1")
    )
    for backend in ("compiled", "reference"):
        (found,) = Session(net, backend=backend, cache=None).run([x])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("counts", [8, [8], [1, 0, 3, 2]], ids=str)
@pytest.mark.parametrize("dim", [1, None])
def test_slices_are_repeated_as_often_as_stored_numbers_say(dim: int | None, counts: int | list[int]) -> None:
    """A raw type takes them as a tensor, and its size is known before a run."""
    x = RANDOM.standard_normal((1, 4, 1, 3)).astype(np.float32) if dim else RANDOM.standard_normal(4).astype(np.float32)
    net = built(
        INPUT,
        op("pnnx.Attribute", "c", "", "1", data=np.array(counts, np.int64)),
        op("pnnx.Expression", "dim", "", "2", expr=str(dim)),
        op("pnnx.Expression", "size", "", "3", expr="None"),
        op("aten::repeat_interleave", "it", "0 1 2 3", "9"),
        op("pnnx.Output", "out", "9"),
        _0=x.shape,
    )
    expected = np.repeat(x, counts, 1 if dim else 0)
    assert net.operands["9"].spec == TensorSpec(expected.shape, expected.dtype)
    session = Session(net, backend="compiled", cache=None)
    np.testing.assert_array_equal(session.run([x])[0], expected)
    assert not [row for row in session.describe()["operators"] if row.get("kernel") == "reference"]


@pytest.mark.parametrize("value", [0.3, -0.5, 1, 0])
def test_every_number_but_0_around_bools_is_true(value: float) -> None:
    """As torch.nn.functional.pad has it."""
    x = np.array([[True, False]])
    net = built(
        INPUT,
        op("F.pad", "pad", "0", "1", pad=(1, 1), mode="constant", value=value),
        op("pnnx.Output", "out", "1"),
        _0=TensorSpec(x.shape, x.dtype),
    )
    found = Session(net, backend="compiled", cache=None).run([x])[0]
    np.testing.assert_array_equal(found, [[value != 0, True, False, value != 0]])
