"""Attention that a graph spells out becomes one kernel, where that gives what its operators give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.passes import ATTENTION
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(5)
BOOL = np.dtype(np.bool_)
SHAPES = {"q": (2, 3, 20, 8), "k": (2, 3, 8, 33), "v": (2, 3, 33, 6)}


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(5))


def random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(F32)


def chain(
    *middle: Operator,
    mask: Array | None = None,
    stored: bool = False,
    after: str = "s",
    tail: tuple[Operator, ...] = (),
    **shapes: Any,
) -> RuntimeGraph:
    """Return softmax of the middle operators applied to q @ k, times v; ``s`` is the input of softmax."""
    sizes: dict[str, Any] = {**SHAPES, **shapes}
    if mask is not None and not stored:
        sizes["m"] = TensorSpec(mask.shape, mask.dtype)
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(sizes)),
        *([op("pnnx.Attribute", "mask", "", "m", data=mask)] if stored and mask is not None else []),
        op("torch.matmul", "scores", "q k", "p" if middle else after),
        *middle,
        op("F.softmax", "weigh", after, "w", dim=-1),
        op("torch.matmul", "attend", "w v", "y"),
        *tail,
        op("pnnx.Output", "out", "y"),
        **{f"_{name}": spec for name, spec in sizes.items()},
    )


def expression(text: str, inputs: str = "p") -> Operator:
    return op("pnnx.Expression", "middle", inputs, "s", expr=text)


def kernels(net: RuntimeGraph, *inputs: Array, **given: Any) -> list[str]:
    """Return the kernels that computed the reference's answer, for these last inputs and random ones before them."""
    session = Session(net, backend="compiled", cache=None, threads=2, **given)
    specs = [port.spec for port in net.inputs if port.spec is not None]
    values = [random(*spec.sizes) for spec in specs[: len(specs) - len(inputs)]] + list(inputs)
    for mine, theirs in zip(session.run(values), Session(net, backend="reference").run(values), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)
    return [row["kernel"] for row in session.run(values, profile=True).kernels]


@pytest.mark.parametrize("text", ["mul(@0,0.3)", "div(@0,2.5)", "mul(0.5,div(@0,2))", "mul(@0,-0.4)", "mul(@0,0)"])
def test_scaled_scores(text: str) -> None:
    assert kernels(chain(expression(text))) == ["attention"]


def test_scores_as_they_are() -> None:
    assert kernels(chain()) == ["attention"]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("text", ["add(div(@0,3),@1)", "add(@1,mul(@0,0.5))", "add(add(@0,@1),@1)"])
@pytest.mark.parametrize("shape", [(2, 3, 20, 33), (20, 33), (2, 1, 1, 33)])
def test_masks_that_are_added(text: str, stored: bool, shape: tuple[int, ...]) -> None:
    mask = random(*shape)
    net = chain(expression(text, "p m"), mask=mask, stored=stored)
    assert kernels(net, *([] if stored else [mask])) == ["attention"]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("fill", [-np.inf, -1e9, float(np.finfo(F32).min), 0.5])
def test_scores_that_are_filled(fill: float, stored: bool) -> None:
    mask = RANDOM.random((2, 1, 20, 33)) < 0.4
    mask[0, 0, 3] = True  # a query that sees no key: NaN, or the mean of all values
    net = chain(op("Tensor.masked_fill", "fill", "p m", "s", value=fill), mask=mask, stored=stored)
    assert kernels(net, *([] if stored else [mask])) == ["attention"]


def test_scores_chosen_by_where() -> None:
    mask = RANDOM.random((20, 33)) < 0.6
    net = chain(
        op("pnnx.Expression", "scale", "p", "p1", expr="mul(@0,0.25)"),
        op("pnnx.Attribute", "low", "", "low", data=np.array(np.finfo(F32).min)),
        op("torch.where", "choose", "m p1 low", "s"),
        mask=mask,
    )
    assert kernels(net, mask) == ["attention"]


def safe(choice: str = "n zero w", *, zero: float = 0.0, test: str = "torch.isnan") -> RuntimeGraph:
    """Return attention with the weights chosen by a test, as PyTorch exports scaled_dot_product_attention."""
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate([*SHAPES, "m"])),
        op("pnnx.Attribute", "nothing", "", "zero", data=np.array(zero, F32)),
        op("torch.matmul", "scores", "q k", "p"),
        expression("add(mul(@0,0.3),@1)", "p m"),
        op("F.softmax", "weigh", "s", "w", dim=-1),
        op(test, "test", "w", "n"),
        op("torch.where", "choose", choice, "w1"),
        op("torch.matmul", "attend", "w1 v", "y"),
        op("pnnx.Output", "out", "y"),
        **{f"_{name}": shape for name, shape in {**SHAPES, "m": (2, 1, 1, 33)}.items()},
    )


def test_a_query_that_sees_no_key_gives_zeros_if_the_graph_says_so() -> None:
    mask = np.where(RANDOM.random((2, 1, 1, 33)) < 0.4, -np.inf, 0).astype(F32)
    mask[1] = -np.inf
    assert kernels(safe(), mask) == ["attention"]


@pytest.mark.parametrize("net", [safe("n w zero"), safe(zero=0.5), safe(test="torch.isfinite")])
def test_other_choices_of_weights_are_computed(net: RuntimeGraph) -> None:
    assert "attention" not in kernels(net, random(2, 1, 1, 33))


def test_dropout_in_between_is_nothing() -> None:
    net = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(SHAPES)),
        op("torch.matmul", "scores", "q k", "p"),
        op("F.softmax", "weigh", "p", "w", dim=3),
        op("nn.Dropout", "drop", "w", "w1", p=0.1),
        op("torch.matmul", "attend", "w1 v", "y"),
        op("pnnx.Output", "out", "y"),
        **{f"_{name}": shape for name, shape in SHAPES.items()},
    )
    assert kernels(net) == ["attention"]


@pytest.mark.parametrize(
    "middle",
    [
        (expression("add(@0,1)"),),
        (expression("exp(@0)"),),
        (expression("mul(add(@0,@1),0.5)", "p q1"),),
        (expression("mul(@0,@0)"),),
    ],
)
def test_what_is_no_attention_stays_what_it_is(middle: tuple[Operator, ...]) -> None:
    other = [op("pnnx.Attribute", "other", "", "q1", data=random(20, 33))] if "q1" in middle[0].inputs else []
    assert kernels(chain(*other, *middle)) == ["product", "softmax", "product"]


def test_scores_with_another_consumer_are_computed() -> None:
    net = chain(expression("mul(@0,0.3)"), tail=(op("pnnx.Output", "out_scores", "s"),))
    assert "attention" not in kernels(net)


def test_it_can_be_left_out() -> None:
    assert kernels(chain(expression("mul(@0,0.3)")), passes_off=[ATTENTION]) == ["product", "softmax", "product"]


def test_masks_of_another_dtype_leave_the_steps_to_themselves() -> None:
    mask = RANDOM.random((20, 33)) < 0.4
    turned = op("torch.transpose", "turn", "m", "m1", dim0=0, dim1=1)
    net = chain(turned, op("Tensor.masked_fill", "fill", "p m1", "s", value=-3.0), mask=mask.T.copy())
    assert kernels(net, mask.T.copy())[-2:] == ["softmax", "product"]


def test_what_the_description_says_of_the_steps() -> None:
    net = chain(expression("mul(@0,0.3)"))
    session = Session(net, backend="compiled", cache=None)
    session.run([random(*shape) for shape in SHAPES.values()])
    rows = {row["name"]: row for row in session.describe()["operators"]}
    assert rows["attend"]["kernel"] == "attention"
    assert {rows[name]["fused_into"] for name in ("scores", "middle", "weigh")} == {"attend"}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_factor_that_is_an_attribute_is_no_operand(is_first: bool) -> None:
    given = {"other": random(8, 33)} if is_first else {}
    others = {} if is_first else {"other": random(33, 6)}
    net = built(
        op("pnnx.Input", "pnnx_input_0", "", "a"),
        op("pnnx.Input", "pnnx_input_1", "", "b"),
        op("torch.matmul", "scores", "a" if is_first else "a b", "p", **given),
        op("F.softmax", "weigh", "p", "w", dim=-1),
        op("torch.matmul", "attend", "w b" if is_first else "w", "y", **others),
        op("pnnx.Output", "out", "y"),
        _a=(20, 8),
        _b=(33, 6) if is_first else (8, 33),
    )
    session = Session(net, backend="compiled", cache=None)
    inputs = [random(20, 8), random(33, 6) if is_first else random(8, 33)]
    np.testing.assert_allclose(
        session.run(inputs)[0], Session(net, backend="reference").run(inputs)[0], rtol=1e-5, atol=1e-5
    )


EINSUMS = {
    "heads in front": ("bhid,bhjd->bhij", "bhij,bhjd->bhid", (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 33, 6)),
    "heads behind positions": ("bihd,bjhd->bhij", "bhij,bjhd->bihd", (2, 20, 3, 8), (2, 33, 3, 8), (2, 33, 3, 6)),
    "operands the other way round": ("bhjd,bhid->bhij", "bhjd,bhij->bhid", (2, 3, 33, 8), (2, 3, 20, 8), (2, 3, 33, 6)),
    "keys of one head": ("bhid,bjd->bhij", "bhij,bjd->bhid", (2, 3, 20, 8), (2, 33, 8), (2, 33, 6)),
    "width before positions": ("bhdi,bhdj->bhij", "bhij,bhdj->bhid", (2, 3, 8, 20), (2, 3, 8, 33), (2, 3, 6, 33)),
    "no stack": ("id,jd->ij", "ij,jd->id", (20, 8), (33, 8), (33, 6)),
    "dots": ("...id,...jd->...ij", "...ij,...jd->...id", (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 33, 6)),
}
OTHER_SUMS = {
    "columns before rows in the result": (
        ("bhid,bhjd->bhij", "bhij,bhjd->bhdi"), (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 33, 6),
    ),
    "weights over all heads": (("bhid,bhjd->bhij", "bhij,bjd->bid"), (2, 3, 20, 8), (2, 3, 33, 8), (2, 33, 6)),
    "rows summed instead of columns": (
        ("bhid,bhjd->bhij", "bhij,bhid->bhjd"), (2, 3, 20, 8), (2, 3, 33, 8),
        (2, 3, 20, 6),
    ),
    "queries beside values": (("bhid,bhjd->bhij", "bhij,bhijd->bhid"), (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 20, 33, 6)),
    "one width, repeated": (("bhid,bhjd->bhij", "bhij,bhjd->bhid"), (2, 3, 20, 8), (2, 3, 33, 1), (2, 3, 33, 6)),
}  # fmt: skip


def summed_chain(equations: tuple[str, str], *shapes: tuple[int, ...]) -> RuntimeGraph:
    """As ``chain``, with Einstein summations for products."""
    first, last = equations
    ordered = "w v" if last.partition(",")[0].endswith("ij") else "v w"
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate("qkv")),
        op("torch.einsum", "scores", "q k", "p", equation=first),
        op("pnnx.Expression", "middle", "p", "s", expr="mul(@0,0.3)"),
        op("F.softmax", "weigh", "s", "w", dim=-1),
        op("torch.einsum", "attend", ordered, "y", equation=last),
        op("pnnx.Output", "out", "y"),
        **dict(zip(("_q", "_k", "_v"), shapes, strict=True)),
    )  # fmt: skip


@pytest.mark.parametrize("case", EINSUMS)
def test_products_written_as_einstein_summations(case: str) -> None:
    first, last, *shapes = EINSUMS[case]
    found = kernels(summed_chain((first, last), *shapes))
    assert found.count("attention") == 1 and not {"softmax", "product"} & {*found}


@pytest.mark.parametrize("case", OTHER_SUMS)
def test_summations_that_are_no_attention_are_left_as_they_are(case: str) -> None:
    equations, *shapes = OTHER_SUMS[case]
    assert "attention" not in kernels(summed_chain(equations, *shapes))


def windows(
    images: int, places: int, mask: Operator, *stored: Operator, scale: str = "mul(@0,0.3)", **shapes: Any
) -> RuntimeGraph:
    """Attention within windows of images, which have a mask for each of their places: shifted windows as they are."""
    heads = 3
    shape = {"q": (images * places, heads, 20, 8), "k": (images * places, heads, 8, 20)}
    shape |= {"v": (images * places, heads, 20, 6), **shapes}
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(shape)),
        op("torch.matmul", "scores", "q k", "p"),
        *stored,
        op("pnnx.Expression", "scale", "p b" if "@1" in scale else "p", "p1", expr=scale),
        op("Tensor.view", "cut", "p1", "p2", shape=(images, places, heads, 20, 20)),
        mask,
        op("Tensor.view", "merge", "p3", "s", shape=(-1, heads, 20, 20)),
        op("F.softmax", "weigh", "s", "w", dim=-1),
        op("torch.matmul", "attend", "w v", "y"),
        op("pnnx.Output", "out", "y"),
        **{f"_{name}": spec for name, spec in shape.items()},
    )


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("shape", [(1, 4, 1, 20, 20), (4, 1, 20, 20), (4, 3, 20, 20), (20, 20), (4, 1, 1, 20)])
def test_windows_have_a_mask_for_each_of_their_places(images: int, shape: tuple[int, ...]) -> None:
    add = op("pnnx.Expression", "add", "p2 m", "p3", expr="add(@0,@1)")
    assert kernels(windows(images, 4, add, m=shape)) == ["attention"]


def test_a_bias_of_each_head_may_come_before_the_masks_of_the_places() -> None:
    bias = op("pnnx.Attribute", "bias", "", "b", data=random(3, 20, 20))
    add = op("pnnx.Expression", "add", "p2 m", "p3", expr="add(@0,@1)")
    assert kernels(windows(2, 4, add, bias, scale="add(mul(@0,0.3),@1)", m=(1, 4, 1, 20, 20))) == ["attention"]


def test_a_key_and_a_value_that_all_windows_share() -> None:
    add = op("pnnx.Expression", "add", "p2 m", "p3", expr="add(@0,@1)")
    assert kernels(windows(2, 4, add, k=(3, 8, 20), v=(1, 1, 20, 6), m=(4, 1, 20, 20))) == ["attention"]


def test_scores_in_another_stack_are_not_the_same_scores() -> None:
    """Two by twelve heads are no three by eight of them."""
    net = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate("qkv")),
        op("torch.matmul", "scores", "q k", "p"),
        op("Tensor.view", "cut", "p", "p1", shape=(4, 3, 20, 20)),
        op("F.softmax", "weigh", "p1", "w", dim=-1),
        op("torch.matmul", "attend", "w v", "y"),
        op("pnnx.Output", "out", "y"),
        _q=(2, 6, 20, 8), _k=(2, 6, 8, 20), _v=(4, 3, 20, 6),
    )  # fmt: skip
    assert "attention" not in kernels(net)


def test_a_softmax_over_queries_in_another_stack_is_none_over_keys() -> None:
    net = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate("qkv")),
        op("torch.matmul", "scores", "q k", "p"),
        op("Tensor.view", "cut", "p", "p1", shape=(2, 3, 20, 20)),
        op("F.softmax", "weigh", "p1", "w", dim=2),
        op("Tensor.view", "merge", "w", "w1", shape=(6, 20, 20)),
        op("torch.matmul", "attend", "w1 v", "y"),
        op("pnnx.Output", "out", "y"),
        _q=(6, 20, 8), _k=(6, 8, 20), _v=(6, 20, 6),
    )  # fmt: skip
    assert "attention" not in kernels(net)


@pytest.mark.parametrize("shape", [(3, 1, 1), (2, 3, 1, 1), (1,), (20, 1), (2, 1, 20, 1)])
def test_heads_may_have_a_scale_of_their_own(shape: tuple[int, ...]) -> None:
    net = chain(expression("mul(@0,@1)", "p m"), mask=abs(random(*shape)) + F32.type(0.5), stored=True)
    assert kernels(net)[-1] == "attention"


@pytest.mark.parametrize("number", [0.0, 1e30, 1e-30, np.nan, np.inf])
def test_scores_are_scaled_where_queries_could_not_be(number: float) -> None:
    """The products of all overflow, or are zero times infinity."""
    scale = np.full((3, 1, 1), number, F32)
    assert "attention" not in kernels(chain(expression("mul(@0,@1)", "p m"), mask=scale, stored=True))


def test_scores_are_scaled_by_what_a_run_computes() -> None:
    scale = random(3, 1, 1)
    assert "attention" not in kernels(chain(expression("mul(@0,@1)", "p m"), mask=scale), scale)


def test_a_scale_of_each_window_and_a_mask_of_its_place() -> None:
    scale = op("pnnx.Attribute", "scales", "", "c", data=np.linspace(0.5, 2, 6, dtype=F32).reshape(2, 1, 3, 1, 1))
    add = op("pnnx.Expression", "add", "p2 m c", "p3", expr="add(mul(@0,@2),@1)")
    assert kernels(windows(2, 4, add, scale, m=(4, 1, 20, 20))) == ["map", "attention"]


@pytest.mark.parametrize("shape", [(33,), (1, 33), (20, 33)])
def test_a_scale_that_differs_from_key_to_key_is_none(shape: tuple[int, ...]) -> None:
    assert "attention" not in kernels(chain(expression("mul(@0,@1)", "p m"), mask=random(*shape), stored=True))


def test_a_scale_of_what_is_masked_already_scales_the_mask() -> None:
    net = chain(expression("mul(add(@0,@1),@1)", "p m"), mask=random(20, 1), stored=True)
    assert "attention" not in kernels(net)
