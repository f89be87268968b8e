"""Elements put elsewhere: the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(19)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def kernels_of(operators: list[Any], inputs: list[np.ndarray], *outputs: str) -> dict[str, str]:
    """Return the kernel of each operator, where the answers are the reference's."""
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    net = built(*ports, *operators, *(op("pnnx.Output", f"out_{name}", name) for name in outputs), **specs)
    session = Session(net, cache=None)
    wanted = Session(net, backend="reference").run(inputs)
    for mine, theirs in zip(session.run(inputs), wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    assert session.compile_failure is None
    return {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}


@pytest.mark.parametrize("shape", [(1,), (3, 17), (2, 1, 65), ()], ids=str)
def test_complex_numbers_and_their_parts(shape: tuple[int, ...]) -> None:
    operators = [
        op("torch.complex", "join", "0 1", "z"),
        op("torch.real", "real", "z", "re"),
        op("torch.imag", "imag", "z", "im"),
        op("torch.view_as_real", "pairs", "z", "p"),
        op("torch.view_as_complex", "back", "p", "w"),
    ]
    kernels = kernels_of(operators, [values(*shape), values(*shape)], "z", "re", "im", "p", "w")
    assert kernels["real"] == kernels["imag"] == "view"
    assert "reference" not in kernels.values()


@pytest.mark.parametrize("offset", [-2, 0, 1])
@pytest.mark.parametrize("shape", [(1,), (5,), (4, 6), (6, 3)], ids=str)
def test_diagonals(shape: tuple[int, ...], offset: int) -> None:
    if len(shape) == 2 or shape[0] + abs(offset) > 0:
        kernels = kernels_of([op("torch.diag", "diag", "0", "1", diagonal=offset)], [values(*shape)], "1")
        assert kernels["diag"] != "reference"


@pytest.mark.parametrize(("start", "end", "step"), [(0, 2, 1), (1, 2147483647, 2), (-3, -1, 1)])
def test_slices_written_over(start: int, end: int, step: int) -> None:
    x = values(3, 5, 7)
    given = {"dim": 1, "start": start, "end": end, "step": step}
    (copy,) = kernels_of([op("Tensor.slice_copy", "copy", "0 1", "2", **given)], [x, values(7)], "2").values()
    assert copy != "reference"


@pytest.mark.parametrize("dim", [None, 1, -2])
def test_cross_products(dim: int | None) -> None:
    kernels = kernels_of([op("torch.cross", "cross", "0 1", "2", dim=dim)], [values(2, 3, 17), values(2, 3, 17)], "2")
    assert kernels["cross"] == "map"


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), ((1, 2), (2, 0), (2, 1))])
def test_patches_are_laid_down(stride: Any, padding: Any, dilation: Any) -> None:
    given = {"kernel_size": (3, 2), "stride": stride, "padding": padding, "dilation": dilation}
    x = values(2, 3, 9, 8)
    operators = [
        op("F.unfold", "unfold", "0", "1", **given),
        op("F.fold", "fold", "1", "2", output_size=(9, 8), **given),
    ]
    assert kernels_of(operators, [x], "2")["fold"] == "map"


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation"),
    [
        ((1, 700), (1, 256), (1, 64), 0, 1),
        ((1, 300), (1, 90), (1, 100), (0, 7), 1),
        ((40, 37), (12, 11), (5, 3), (2, 0), 1),
        ((30, 41), (9, 4), (9, 1), 0, (1, 3)),
        ((1, 80), (1, 20), (1, 19), 0, (1, 3)),
    ],
)
def test_large_patches_are_laid_down_by_pieces_that_meet_nowhere(
    size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> None:
    given = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    operators = [
        op("F.unfold", "unfold", "0", "1", **given),
        op("F.fold", "fold", "1", "2", output_size=size, **given),
    ]
    assert kernels_of(operators, [values(2, 2, *size)], "2")["fold"] == "map"


@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_layers_whose_weights_are_computed(has_bias: bool) -> None:
    inputs = [values(3, 5, 17), values(65, 17), *([values(65)] if has_bias else [])]
    names = "0 1 2" if has_bias else "0 1"
    given = {} if has_bias else {"bias": None}
    assert kernels_of([op("F.linear", "linear", names, "3", **given)], inputs, "3")["linear"] == "product"
