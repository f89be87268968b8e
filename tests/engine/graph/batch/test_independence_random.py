"""Random graphs of the operators that have rules: where items are proved independent, they are.

The batch then gives what each item gives by itself, and items in another order the answers in that order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

from engine import EngineError, RuntimeGraph
from engine.graph.batch.independence import Proof, prove
from engine.graph.running.reference import execute
from engine.pnnx import Operator
from engine.tensor import TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op
from tests.nightly import IS_NIGHTLY

Draw: TypeAlias = random.Random
Make: TypeAlias = Callable[[Draw, str, list[str], str], Operator]

ITEMS: Final = 5
SHAPE: Final = (2, 4)  # of an item
GRAPHS: Final = 4000 if IS_NIGHTLY else 120
STEPS: Final = 7
TABLE: Final = np.arange(8, dtype=np.int64)[::-1].copy()
PLANE: Final = np.linspace(-1, 1, 8, dtype=F32).reshape(2, 4)
ROW: Final = np.array([0.5, -2, 3, 1], F32)
COUNT: Final = op("Tensor.size", "count", "0", "n", dim=0)
SOURCES: Final = [
    op("pnnx.Attribute", "table", "", "table", data=TABLE),
    op("pnnx.Attribute", "plane", "", "plane", data=PLANE),
    op("pnnx.Attribute", "row", "", "row", data=ROW),
    COUNT,
    op("torch.arange", "range", "n", "r", labels=("end",)),
    op("torch.argmax", "places", "0", "places", dim=2, keepdim=False),
]
STARTS: Final = ("0", "0", "0", "1", "r", "plane", "row", "table", "places")


def axis(draw: Draw) -> int:
    return draw.randint(-3, 2)


def one(type: str, **options: Callable[[Draw], Any]) -> Make:
    """An operator of one tensor with random parameters."""
    return lambda draw, name, given, result: op(
        type, name, given[0], result, **{key: pick(draw) for key, pick in options.items()}
    )


def two(type: str, **options: Callable[[Draw], Any]) -> Make:
    """An operator of two tensors."""
    return lambda draw, name, given, result: op(
        type, name, " ".join(given[:2]), result, **{key: pick(draw) for key, pick in options.items()}
    )


def sized(type: str, text: Sequence[str], label: str) -> Make:
    """An operator with a list of sizes, one of which may be the number of items."""

    def make(draw: Draw, name: str, given: list[str], result: str) -> Operator:
        return op(type, name, f"{given[0]} sizes{draw.randrange(len(SIZES))}", result, labels=("input", label))

    return make


def indexed(draw: Draw, name: str, given: list[str], result: str) -> Operator:
    return op("Tensor.index", name, f"{given[0]} list_{given[1]}", result)


def reduced(draw: Draw, name: str, given: list[str], result: str) -> Operator:
    return op(draw.choice(["torch.sum", "torch.mean", "torch.amax"]), name, given[0], result, dim=(axis(draw),),
              keepdim=draw.random() < 0.6)  # fmt: skip


def expression(draw: Draw, name: str, given: list[str], result: str) -> Operator:
    text = draw.choice(["add(@0,@1)", "mul(@0,@1)", "sub(@0,mul(@1,2))", "add(@0,size(@1,0))", "maximum(@0,@1)"])
    return op("pnnx.Expression", name, " ".join(given[:2]), result, expr=text)


def einsum(draw: Draw, name: str, given: list[str], result: str) -> Operator:
    text = draw.choice(["nij,nij->nij", "nij,nij->n", "nij,mij->nm", "nij,nkj->nik", "ijk->jik", "nij,nij->ij"])
    operands = given[:2] if "," in text else given[:1]
    return op("torch.einsum", name, " ".join(operands), result, equation=text)


SIZES: Final = ["[@0,8]", "[@0,2,4]", "[2,@0,4]", "[-1,4]", "[mul(@0,2),4]", "[4,-1]", "[@0,1]", "[1,@0,4]", "[-1]"]
LISTS: Final = [
    op("pnnx.Expression", f"sizes_{number}", "n", f"sizes{number}", expr=text) for number, text in enumerate(SIZES)
]
MAKES: Final[list[Make]] = [
    one("nn.ReLU"),
    one("torch.softmax", dim=axis),
    one("torch.cumsum", dim=axis),
    one("torch.flip", dims=lambda draw: (axis(draw),)),
    one("torch.roll", shifts=lambda draw: (draw.randint(1, 3),), dims=lambda draw: (axis(draw),)),
    one("torch.transpose", dim0=axis, dim1=axis),
    one("Tensor.permute", dims=lambda draw: tuple(draw.sample(range(3), 3))),
    one("torch.flatten", start_dim=lambda draw: draw.randint(0, 1), end_dim=lambda draw: draw.randint(1, 2)),
    one("torch.squeeze", dim=axis),
    one("torch.unsqueeze", dim=axis),
    one("Tensor.select", dim=axis, index=lambda draw: draw.randint(-1, 1)),
    one("torch.argmax", dim=axis, keepdim=lambda draw: draw.random() < 0.5),
    one("torch.repeat_interleave", repeats=lambda draw: draw.randint(1, 2), dim=axis),
    one("Tensor.repeat", sizes=lambda draw: tuple(draw.randint(1, 2) for _ in range(3))),
    one("Tensor.to", dtype=lambda draw: draw.choice(["torch.float", "torch.long", "torch.bool"])),
    one("torch.zeros_like"),
    one("F.pad", mode=lambda _: "constant", pad=lambda draw: tuple(draw.randint(0, 1) for _ in range(4)),
        value=lambda _: 0.0),
    one("nn.AvgPool1d", kernel_size=lambda _: (2,), stride=lambda _: (1,), padding=lambda _: (0,),
        ceil_mode=lambda _: False, count_include_pad=lambda _: True),
    one("nn.InstanceNorm1d", num_features=lambda draw: draw.choice([2, 4]), eps=lambda _: 1e-3,
        affine=lambda _: False, track_running_stats=lambda _: False),
    reduced,
    expression,
    expression,
    einsum,
    indexed,
    indexed,
    two("torch.matmul"),
    two("torch.add"),
    two("torch.cat", dim=axis),
    two("torch.stack", dim=axis),
    two("torch.index_select", dim=axis),
    two("torch.gather", dim=axis),
    two("Tensor.expand_as"),
    two("Tensor.type_as"),
    two("Tensor.reshape_as"),
    sized("Tensor.reshape", SIZES, "shape"),
    sized("Tensor.reshape", SIZES, "shape"),
    sized("Tensor.expand", SIZES, "sizes"),
]  # fmt: skip


def random_graph(draw: Draw) -> RuntimeGraph | None:
    """A chain of operators that fit their operands; None where none did."""
    operators, names, graph = list(SOURCES + LISTS), list(STARTS), None
    for number in range(STEPS):
        make, result = draw.choice(MAKES), f"v{number}"
        given = [draw.choice([*names, *names[-2:] * 3]) for _ in range(2)]
        added = [make(draw, f"op{number}", given, result)]
        for index in {each for each in added[0].inputs if each.startswith("list_")}:
            added.insert(0, op("prim::ListConstruct", f"make_{index}{number}", index.removeprefix("list_"), index))
            if any(index in each.outputs for each in operators):
                added.pop(0)
        try:
            graph = built(*INPUTS, *operators, *added, op("pnnx.Output", "out", result), _0=(None, *SHAPE),
                          _1=(None, *SHAPE))  # fmt: skip
        except EngineError:
            continue
        operators += added
        names.append(result)
    return graph and used(graph)


def used(graph: RuntimeGraph) -> RuntimeGraph:
    """The graph without operators that its output does not need: they may refuse a batch of that size."""
    needed: set[str] = set()
    kept = []
    for each in graph.operators[::-1]:
        if each.type in ("pnnx.Input", "pnnx.Output") or not needed.isdisjoint(made.name for made in each.outputs):
            needed.update(given.name for given in each.inputs)
            kept.append(each.name)
    sources = [each for each in graph.source.operators if each.name in kept]
    return built(*sources, _0=(None, *SHAPE), _1=(None, *SHAPE))


INPUTS: Final = [INPUT, op("pnnx.Input", "in_1", "", "1")]


def inputs_of(draw: Draw) -> list[np.ndarray]:
    """Two inputs whose items differ much, one of them not finite."""
    random = np.random.default_rng(draw.randrange(1 << 30))
    found = [random.integers(-3, 4, (ITEMS, *SHAPE)).astype(F32) * np.arange(1, ITEMS + 1, dtype=F32)[:, None, None]
             for _ in range(2)]  # fmt: skip
    found[0][draw.randrange(ITEMS), 0, 0] = draw.choice([np.nan, np.inf, 1e30])
    return found


def items_of(array: np.ndarray, axis: int | None, order: Sequence[int]) -> np.ndarray:
    """Items of an output in an order; all of an output that is the same for every batch."""
    if axis is None:
        return array
    size = array.shape[axis] // ITEMS
    return np.concatenate([np.take(array, range(k * size, (k + 1) * size), axis) for k in order], axis)


def check(graph: RuntimeGraph, proof: Proof, inputs: list[np.ndarray], order: list[int]) -> None:
    (whole,) = execute(graph.plan, inputs)
    (axis,) = proof.outputs
    for number in range(ITEMS):
        (alone,) = execute(graph.plan, [each[[number]] for each in inputs])
        np.testing.assert_allclose(items_of(whole, axis, [number]), alone, rtol=1e-4, atol=1e-4)
    (turned,) = execute(graph.plan, [each[order] for each in inputs])
    np.testing.assert_allclose(items_of(whole, axis, order), turned, rtol=1e-4, atol=1e-4)


def check_unless_refused(graph: RuntimeGraph, proof: Proof, inputs: list[np.ndarray], order: list[int]) -> None:
    """The same; values that are refused in a batch are refused of an item by itself."""
    try:
        check(graph, proof, inputs, order)
    except EngineError:
        with pytest.raises(EngineError):
            for number in range(ITEMS):
                execute(graph.plan, [each[[number]] for each in inputs])


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_answer_items_in_any_order_as_alone_where_that_is_proved(seed: int) -> None:
    draw, proved = random.Random(seed), 0
    for _ in range(GRAPHS // 4):
        graph = random_graph(draw)
        if graph is None:
            continue
        proof = prove(graph, [TensorSpec((1, *SHAPE), F32)] * 2, (0, 0))
        if proof.reason is None:
            proved += 1
            with np.errstate(all="ignore"):
                check_unless_refused(graph, proof, inputs_of(draw), draw.sample(range(ITEMS), ITEMS))
    assert proved >= GRAPHS // 40
