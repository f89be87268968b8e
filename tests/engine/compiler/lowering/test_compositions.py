"""Operators that several kernels compute, and what a graph returns in a tuple: the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.pnnx import Operator
from tests.combining import together
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(7)
SHAPES = [(1, 1, 1), (2, 3, 17), (3, 4, 5, 6), (2, 65, 2), (1, 16, 9, 1)]


def check(net: RuntimeGraph, *inputs: np.ndarray) -> dict[str, str]:
    """Return how the operators ran, where they gave the reference's answer."""
    session = Session(net, backend="compiled", cache=None)
    found, wanted = session.run(inputs), Session(net, backend="reference").run(inputs)
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
    return {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}


def one(operator: Operator, x: np.ndarray) -> str:
    return check(built(INPUT, operator, op("pnnx.Output", "out", "1"), _0=x.shape), x)[operator.name]


@together(
    ("shape", SHAPES),
    ("dim", [(0,), (1,), (-1,), (0, 2), (0, 1, 2), (2, 1)]),
    ("type_", ["sum", "mean", "amax", "amin", "prod", "logsumexp", "norm", "var", "std"]),
)
def test_any_dimensions_are_reduced(type_: str, dim: tuple[int, ...], shape: tuple[int, ...]) -> None:
    given: dict[str, Any] = {"dim": dim[0] if type_ == "prod" else dim, "keepdim": len(dim) == 2}
    if type_ == "norm":
        given["p"] = 2
    if type_ in ("var", "std"):
        given["unbiased"] = False
    x = RANDOM.standard_normal(shape).astype(F32)
    assert one(op(f"torch.{type_}", "reduce", "0", "1", **given), x) != "reference"


@pytest.mark.parametrize("type_", ["mean", "sum", "amax"])
def test_what_is_reduced_may_be_joined_with_others(type_: str) -> None:
    """Spatial attention: channels become one, beside others, among which its elements do not lie side by side."""
    net = built(
        INPUT,
        conv("first", "0", "1", (3, 24)),
        op(f"torch.{type_}", "reduce", "1", "2", dim=(1,), keepdim=True),
        op("torch.amin", "least", "1", "3", dim=(1,), keepdim=True),
        op("torch.cat", "cat", "2 3", "4", dim=1),
        conv("second", "4", "5", (2, 1), (7, 7), padding=(3, 3)),
        op("pnnx.Output", "out", "5"),
        _0=(1, 3, 11, 13),
    )
    x = np.random.default_rng(3).standard_normal((1, 3, 11, 13)) / 100
    kernels = check(net, x.astype(F32))
    assert {kernels["reduce"], kernels["least"]}.isdisjoint({"reference"})


@pytest.mark.parametrize("p", [0, 1, 3, 2.5, float("inf"), float("-inf"), "fro"])
def test_norms_of_any_order(p: float | str) -> None:
    x = RANDOM.standard_normal((3, 17, 2)).astype(F32)
    assert one(op("torch.norm", "norm", "0", "1", p=p, dim=(1,), keepdim=True), x) != "reference"
    if not isinstance(p, str):
        assert one(op("F.normalize", "norm", "0", "1", p=p, dim=-1, eps=1e-12), x) != "reference"


@pytest.mark.parametrize("type_", ["logsumexp", "sum", "amax", "prod"])
def test_what_is_not_finite_comes_through(type_: str) -> None:
    x = np.array([[1, np.inf, 2], [np.nan, 0, np.inf], [-np.inf, -np.inf, -np.inf], [-np.inf, 3, 4]], F32)
    with np.errstate(all="ignore"):
        one(op(f"torch.{type_}", "reduce", "0", "1", dim=1 if type_ == "prod" else (1,), keepdim=False), x)
        one(op(f"torch.{type_}", "reduce", "0", "1", dim=0 if type_ == "prod" else (0,), keepdim=False), x)


@pytest.mark.parametrize("shape", [(1, 6, 1), (2, 6, 17), (3, 6, 5, 7), (2, 6, 3, 4, 5)], ids=str)
def test_statistics_of_the_tensor_itself(shape: tuple[int, ...]) -> None:
    x, rank = RANDOM.standard_normal(shape).astype(F32), len(shape) - 2
    weight, bias = (RANDOM.standard_normal(6).astype(F32) for _ in range(2))
    affine = {"affine": True, "weight": weight, "bias": bias, "eps": 1e-5}
    norms = [
        op("nn.GroupNorm", "norm", "0", "1", num_groups=3, num_channels=6, **affine),
        op("F.group_norm", "norm", "0", "1", num_groups=2, weight=None, bias=None, eps=1e-5),
        op(f"nn.InstanceNorm{rank}d", "norm", "0", "1", num_features=6, track_running_stats=False, **affine),
        op("F.local_response_norm", "norm", "0", "1", size=5, alpha=1e-2, beta=0.75, k=1.5),
        op("F.local_response_norm", "norm", "0", "1", size=20, alpha=1e-2, beta=0.5, k=1.5),
    ]
    for norm in norms:
        assert one(norm, x) != "reference", norm.type


def test_a_norm_by_neighbouring_channels_reads_images_in_the_order_they_lie_in() -> None:
    x = RANDOM.standard_normal((2, 3, 9, 7)).astype(F32)
    net = built(
        INPUT,
        conv("conv", "0", "1", (3, 20)),
        op("F.local_response_norm", "norm", "1", "2", size=5, alpha=1e-2, beta=0.75, k=2.0),
        conv("next", "2", "3", (20, 8)),
        op("pnnx.Output", "out", "3"),
        _0=x.shape,
    )
    session = Session(net, backend="compiled", cache=None, threads=1)
    (found,), (wanted,) = session.run([x]), Session(net, backend="reference").run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    norm = [each["kernel"] for each in session.run([x], profile=True).kernels if "norm" in each["operators"]]
    assert set(norm) == {"map"}, norm  # nothing is turned


def test_batch_statistics_and_those_of_a_run() -> None:
    x, vectors = RANDOM.standard_normal((4, 5, 3, 2)).astype(F32), RANDOM.random((4, 5), np.float32) + 0.1
    inputs = [op("pnnx.Input", f"in_{k}", "", str(k)) for k in range(5)]
    net = built(
        *inputs,
        op("F.batch_norm", "given", "0 1 2 3 4", "5", eps=1e-5),
        op("F.batch_norm", "own", "0", "6", running_mean=None, running_var=None, weight=None, bias=None, eps=1e-5),
        op("pnnx.Output", "out_a", "5"),
        op("pnnx.Output", "out_b", "6"),
        _0=x.shape,
        _1=(5,),
        _2=(5,),
        _3=(5,),
        _4=(5,),
    )
    kernels = check(net, x, *vectors)
    assert "reference" not in kernels.values()


@pytest.mark.parametrize("norm_type", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_power_pools(norm_type: int, ceil_mode: bool) -> None:
    x = RANDOM.random((2, 3, 9, 8), np.float32)
    given = {"norm_type": norm_type, "kernel_size": (3, 2), "stride": (2, 2), "ceil_mode": ceil_mode}
    assert one(op("F.lp_pool2d", "pool", "0", "1", **given), x) != "reference"


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (9, 8), (10, 3)])
def test_adaptive_maxima(size: tuple[int, int]) -> None:
    x = RANDOM.standard_normal((2, 3, 9, 8)).astype(F32)
    x[1, 2, 3, 4] = np.nan
    pool = op("F.adaptive_max_pool2d", "pool", "0", "1", output_size=size, return_indices=False)
    assert one(pool, x) in ("pool", "removed")


@pytest.mark.parametrize("order", ["1 2", "2 1 0", "1 1"])
def test_what_is_returned_in_a_tuple_takes_no_step(order: str) -> None:
    net = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("torch.flatten", "flat", "1", "2", start_dim=1, end_dim=-1),
        op("prim::TupleConstruct", "pair", order, "3"),
        op("prim::ListConstruct", "list", "3 1", "4"),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3, 5, 5),
    )
    kernels = check(net, RANDOM.standard_normal((1, 3, 5, 5)).astype(F32))
    assert kernels["pair"] in ("view", "reference", "removed")


def test_a_graph_of_views_alone_is_copied_by_kernels() -> None:
    net = built(
        INPUT,
        op("torch.transpose", "turn", "0", "1", dim0=0, dim1=1),
        op("prim::TupleConstruct", "pair", "1 0", "2"),
        op("pnnx.Output", "out", "2"),
        _0=(3, 5),
    )
    assert "reference" not in check(net, RANDOM.standard_normal((3, 5)).astype(F32)).values()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
def test_constants_are_returned_in_their_shape(shape: tuple[int, ...]) -> None:
    for dtype in ("float32", "int64", "bool"):
        data = np.ones(shape, dtype)
        net = built(
            INPUT,
            op("nn.ReLU", "relu", "0", "1"),
            op("pnnx.Attribute", "fixed", "", "2", data=data),
            op("prim::TupleConstruct", "pair", "2 1", "3"),
            op("pnnx.Output", "out", "3"),
            _0=(3, 5),
        )
        check(net, RANDOM.standard_normal((3, 5)).astype(F32))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows_may_be_joined_with_others_along_any_dimension(dim: int) -> None:
    """A token joined before others of a batch: its rows are not equally spaced in the result."""
    weight = RANDOM.standard_normal((8, 8)).astype(F32)
    net = built(
        INPUT,
        op("nn.Linear", "linear", "0", "1", in_features=8, out_features=8, bias=False, weight=weight),
        op("torch.cumsum", "sums", "0", "2", dim=1),
        op("torch.matmul", "product", "0 3", "4"),
        op("torch.transpose", "turn", "0", "3", dim0=1, dim1=2),
        op("torch.matmul", "back", "4 0", "5"),
        op("torch.cat", "cat", "1 2 5", "6", dim=dim),
        op("pnnx.Output", "out", "6"),
        _0=(2, 6, 8),
    )
    assert "reference" not in check(net, RANDOM.standard_normal((2, 6, 8)).astype(F32)).values()


@pytest.mark.parametrize(("stride", "padding", "groups"), [(1, 0, 1), (2, 1, 1), (3, 2, 2)])
def test_transposed_convolutions_of_signals(stride: int, padding: int, groups: int) -> None:
    weight = RANDOM.standard_normal((6, 4 // groups, 3)).astype(F32)
    given = {"in_channels": 6, "out_channels": 4, "kernel_size": (3,), "output_padding": (0,), "dilation": (1,)}
    layer = op(
        "nn.ConvTranspose1d", "up", "0", "1", stride=(stride,), padding=(padding,), groups=groups, bias=False,
        weight=weight, **given,
    )  # fmt: skip
    assert one(layer, RANDOM.standard_normal((2, 6, 17)).astype(F32)) == "conv"


@pytest.mark.parametrize(
    ("stride", "dilation", "kernel", "padding"),
    [
        ((1, 1), (2, 3), (3, 3), (2, 0)),
        ((2, 3), (3, 2), (3, 4), (1, 4)),
        ((4, 1), (6, 5), (4, 2), (0, 1)),  # rows that meet no tap
        ((2, 2), (2, 4), (1, 2), (0, 0)),
        ((3, 2), (4, 1), (5, 2), (0, 1)),
    ],
    ids=str,
)
def test_dilated_transposed_convolutions(
    stride: tuple[int, int], dilation: tuple[int, int], kernel: tuple[int, int], padding: tuple[int, int]
) -> None:
    weight = RANDOM.standard_normal((6, 2, *kernel)).astype(F32)
    given = {"in_channels": 6, "out_channels": 4, "kernel_size": kernel, "groups": 2, "bias": False}
    places = {"stride": stride, "dilation": dilation, "padding": padding, "output_padding": (0, 0)}
    layer = op("nn.ConvTranspose2d", "up", "0", "1", weight=weight, **given, **places)
    assert one(layer, RANDOM.standard_normal((2, 6, 5, 4)).astype(F32)) != "reference"


@pytest.mark.parametrize(
    ("shape", "stride", "padding", "more"),
    [((1, 1), 1, 0, 0), ((1, 1), 2, 1, 1), ((1, 1), 3, 2, 2), ((1, 5), 1, 1, 0), ((5, 1), 2, 0, 1), ((1, 1), 5, 0, 4)],
    ids=str,
)
def test_transposed_convolutions_of_images_of_a_single_row_or_column(
    shape: tuple[int, int], stride: int, padding: int, more: int
) -> None:
    weight, bias = RANDOM.standard_normal((6, 2, 4, 4)).astype(F32), RANDOM.standard_normal(4).astype(F32)
    given = {"in_channels": 6, "out_channels": 4, "kernel_size": (4, 4), "dilation": (1, 1), "groups": 2, "bias": bias}
    two = {"stride": (stride,) * 2, "padding": (padding,) * 2, "output_padding": (more,) * 2}
    layer = op("nn.ConvTranspose2d", "up", "0", "1", weight=weight, **given, **two)
    assert one(layer, RANDOM.standard_normal((2, 6, *shape)).astype(F32)) != "reference"


@pytest.mark.parametrize(
    "kind", ["torch.mean", "torch.var", "torch.std", "torch.amax", "torch.norm", "torch.logsumexp"]
)
def test_what_is_folded_whole_is_read_in_the_order_it_lies_in(kind: str) -> None:
    """A convolution's result is channels-last; a norm over all of it needs no transposition."""
    given = {"p": 2} if kind == "torch.norm" else {"unbiased": False} if kind in ("torch.var", "torch.std") else {}
    net = built(
        INPUT,
        conv("conv", "0", "1", (4, 24), (3,)),
        op(kind, "all", "1", "2", dim=(1, 2), keepdim=True, **given),
        op("pnnx.Expression", "expr", "1 2", "3", expr="sub(@0,@1)"),
        op("pnnx.Output", "out", "3"),
        _0=(2, 4, 50),
    )
    assert "transpose" not in check(net, RANDOM.standard_normal((2, 4, 50)).astype(F32)).values()


def test_element_wise_results_lie_in_the_order_of_what_they_are_made_of() -> None:
    """The sources of a mixture are channels cut into two: read and written contiguously, without a transposition."""
    net = built(
        INPUT,
        conv("conv", "0", "1", (4, 48), (3,)),
        op("Tensor.reshape", "cut", "1", "2", shape=(1, 2, 24, 48)),
        op("F.softplus", "plus", "2", "3", beta=1.0, threshold=20.0),
        op("Tensor.reshape", "one", "3", "4", shape=(2, 24, 48)),
        conv("again", "4", "5", (24, 8), (3,)),
        op("pnnx.Output", "out", "5"),
        _0=(1, 4, 50),
    )
    x = RANDOM.standard_normal((1, 4, 50)).astype(F32)
    check(net, x)
    session = Session(net, backend="compiled", threads=1, cache=None)
    session.run([x])
    kernels = session.run([x], profile=True).kernels
    assert "transpose" not in {row["kernel"] for row in kernels if {"plus", "again"} & {*row["operators"]}}
