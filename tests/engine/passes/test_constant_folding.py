"""Constants are computed once, unless they are random, too large, or depend on an input."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from engine import Layer, RunCancelledError, TensorSpec, register, registry
from engine.graph import execute
from engine.layers.definition.known import RANDOM_MODULES
from engine.passes import PASSES, optimise
from engine.passes.constant_folding import constant_folding
from engine.passes.support.budget import MADE
from engine.passes.support.rewriting import GROWTH, LARGE
from engine.pnnx import Operator
from tests.architecture.test_imports import imported, modules
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, expressions, names, types

GRID = np.arange(6, dtype=F32).reshape(2, 3)
OUT = op("pnnx.Output", "out", "9")


def constant(name: str = "c", data: np.ndarray = GRID) -> Operator:
    return op("pnnx.Attribute", name, "", name, data=data)


def data_of(graph: Any, name: str) -> np.ndarray:
    return next(o.attributes["data"].data for o in graph.source.operators if o.name == name)


def test_a_chain_of_constants_becomes_one_stored_tensor() -> None:
    graph = built(
        INPUT,
        constant(),
        op("torch.t", "turned", "c", "1"),
        op("pnnx.Expression", "twice", "1", "2", expr="mul(@0,2)"),
        op("pnnx.Expression", "sum", "0 2", "9", expr="add(@0,@1)"),
        OUT,
        _0=(3, 2),
        _2=(3, 2),
    )
    made = applied(constant_folding, graph)
    assert types(made) == ["pnnx.Attribute", "pnnx.Attribute", "pnnx.Expression"]
    assert names(made) == ["c", "pnnx_fold_2", "sum"]
    np.testing.assert_array_equal(data_of(made, "pnnx_fold_2"), GRID.T * 2)


def test_what_is_stored_already_stays_as_it_is() -> None:
    graph = built(INPUT, constant(), op("pnnx.Expression", "sum", "0 c", "9", expr="add(@0,@1)"), OUT, _0=(2, 3))
    assert_untouched(constant_folding, graph)


def test_an_operator_with_several_outputs_stores_those_in_use() -> None:
    graph = built(
        INPUT,
        constant(),
        op("torch.unbind", "rows", "c", "1 2", dim=0),
        op("pnnx.Expression", "sum", "0 2", "9", expr="add(@0,@1)"),
        OUT,
        _0=(3,),
        _1=(3,),
        _2=(3,),
    )
    made = applied(constant_folding, graph)
    assert names(made) == ["c", "pnnx_fold_2", "sum"]


def test_a_list_of_tensors_no_file_can_hold_is_unpacked_before_it_is_stored() -> None:
    graph = built(
        INPUT,
        op("torch.arange", "x", "", "1", start=0, end=3, step=1),
        op("torch.arange", "y", "", "2", start=0, end=2, step=1),
        op("prim::ListConstruct", "both", "2 1", "3"),
        op("pnnx.Expression", "ij", "", "4", expr="ij"),
        op("aten::meshgrid", "grid", "3 4", "5"),
        op("prim::ListUnpack", "unpack", "5", "6 7"),
        op("pnnx.Expression", "sum", "0 7", "9", expr="add(@0,@1)"),
        OUT,
        _0=(2, 3),
    )
    made = applied(constant_folding, graph)
    assert names(made) == ["ij", "pnnx_fold_7", "sum"]


def test_what_cannot_be_stored_stays_with_all_it_needs() -> None:
    graph = built(
        INPUT,
        constant(),
        op("pnnx.Expression", "twice", "c", "1", expr="mul(@0,2)"),
        op("prim::TupleConstruct", "pair", "1 c", "2"),
        op("pnnx.Output", "out", "2"),
        op("pnnx.Output", "out_1", "0"),
        _0=(3,),
    )
    made = applied(constant_folding, graph)
    assert names(made) == ["c", "pnnx_fold_1", "pair"]


def test_a_constant_output_of_the_graph_is_stored() -> None:
    graph = built(
        INPUT, op("torch.zeros", "zeros", "", "1", size=(2, 3)), op("pnnx.Output", "out", "1"), _0=(1,), _1=(2, 3)
    )
    made = applied(constant_folding, graph)
    assert types(made) == ["pnnx.Attribute"]
    assert made.outputs[0].operand == "1"


def test_static_shape_arithmetic_becomes_a_parameter() -> None:
    graph = built(
        INPUT,
        op("Tensor.size", "n", "0", "1", dim=0),
        op("Tensor.size", "c", "0", "2", dim=1),
        op("pnnx.Expression", "sizes", "1 2", "3", expr="[@0,mul(@1,4)]"),
        op("Tensor.reshape", "view", "0 3", "9", labels=("input", "shape")),
        OUT,
        _0=(2, 3, 4),
    )
    made = applied(constant_folding, graph)
    assert names(made) == ["view"]
    assert made.source.operators[1].params == {"shape": (2, 12)}
    assert made.source.operators[1].labels == ("input",)


def test_dynamic_sizes_stay_operands_and_known_ones_become_numbers() -> None:
    graph = built(
        INPUT,
        op("pnnx.Expression", "sizes", "0", "1", expr="[size(@0,0),mul(size(@0,1),4)]"),
        op("Tensor.reshape", "view", "0 1", "9", labels=("input", "shape")),
        OUT,
        _0=(None, 3, 4),
    )
    made = applied(constant_folding, graph)
    assert expressions(made) == ["[size(@0,0),12]"]
    assert types(made) == ["pnnx.Expression", "Tensor.reshape"]


def test_a_known_number_an_operator_takes_by_position_becomes_a_parameter() -> None:
    graph = built(
        INPUT,
        op("prim::Constant", "two", "", "1", value=2),
        op("prim::Constant", "three", "", "2", value=3),
        op("aten::add", "sum", "0 1 2", "9"),
        OUT,
        _0=(2, 3),
    )
    made = applied(constant_folding, graph)
    assert made.source.operators[-2].params == {"other": 2, "alpha": 3}
    assert made.source.operators[-2].inputs == ("0",)


def test_a_type_with_positional_schemas_keeps_its_operands() -> None:
    graph = built(
        INPUT,
        op("pnnx.Expression", "dim", "", "1", expr="1"),
        op("pnnx.Expression", "down", "", "2", expr="False"),
        op("aten::sort", "sort", "0 1 2", "3 9"),
        OUT,
        _0=(2, 3),
        _3=(2, 3),
        _9=TensorSpec((2, 3), np.dtype(np.int64)),
    )
    assert_untouched(constant_folding, graph)


def test_a_known_dim_of_an_operator_with_any_number_of_tensors_becomes_a_parameter() -> None:
    graph = built(
        INPUT,
        op("prim::Constant", "one", "", "1", value=1),
        op("torch.cat", "join", "0 0 1", "9", labels=(None, None, "dim")),
        OUT,
        _0=(2, 3),
    )
    made = applied(constant_folding, graph)
    assert made.source.operators[-2].params == {"dim": 1}
    assert made.source.operators[-2].inputs == ("0", "0")


def test_a_cast_number_is_stored_as_the_tensor_it_becomes() -> None:
    graph = built(
        INPUT,
        op("pnnx.Expression", "number", "", "1", expr="3"),
        op("Tensor.to", "cast", "1", "2", dtype="torch.double"),
        op("pnnx.Expression", "sum", "0 2", "9", expr="add(@0,@1)"),
        OUT,
        _0=(2, 3),
    )
    made = applied(constant_folding, graph)
    assert names(made) == ["number", "pnnx_fold_2", "sum"]
    assert data_of(made, "pnnx_fold_2").dtype == np.float64


def test_literals_of_an_expression_are_computed() -> None:
    graph = built(INPUT, op("pnnx.Expression", "e", "0", "9", expr="mul(@0,sqrt(16))"), OUT, _0=(2, 3))
    assert expressions(applied(constant_folding, graph)) == ["mul(@0,4.0)"]


def test_a_part_of_an_expression_that_reads_constants_only_is_stored() -> None:
    graph = built(
        INPUT,
        constant(),
        op("pnnx.Expression", "e", "c 0", "9", expr="add(mul(@1,sqrt(add(@0,1))),@0)"),
        OUT,
        _0=(2, 3),
    )
    made = applied(constant_folding, graph)
    assert expressions(made) == ["add(mul(@1,@2),@0)"]
    np.testing.assert_array_equal(data_of(made, "pnnx_fold_e"), np.sqrt(GRID + 1))
    assert made.source.annotations["pnnx_fold_e"] == TensorSpec((2, 3), F32)


def test_a_part_of_an_expression_that_would_grow_too_large_stays() -> None:
    count = 600
    graph = built(
        INPUT,
        constant("a", np.ones((count, 1), F32)),
        constant("b", np.ones((1, count), F32)),
        op("pnnx.Expression", "e", "0 a b", "9", expr="mul(@0,add(@1,@2))"),
        OUT,
        _0=(1, count),
    )
    assert_untouched(constant_folding, graph)


def test_a_part_of_an_expression_that_fails_is_left_to_fail_in_the_run() -> None:
    graph = built(
        INPUT,
        constant(data=np.array([0, 1])),
        op("pnnx.Expression", "e", "0 c", "9", expr="add(@0,floor_divide(3,@1))"),
        OUT,
        _0=(2,),
    )
    assert_untouched(constant_folding, graph)


def test_a_name_that_is_taken_is_not_given_again() -> None:
    graph = built(
        INPUT,
        constant(),
        op("pnnx.Expression", "pnnx_fold_1", "0 c", "2", expr="add(@0,@1)"),
        op("torch.t", "turned", "c", "1"),
        op("pnnx.Expression", "sum", "2 1", "9", expr="add(@0,size(@1,0))"),
        op("pnnx.Output", "out_1", "1"),
        OUT,
        _0=(2, 3),
    )
    assert names(applied(constant_folding, graph)) == ["c", "pnnx_fold_1", "pnnx_fold_1_1", "sum"]


def test_a_constant_of_one_element_becomes_a_number() -> None:
    graph = built(
        INPUT,
        constant(data=np.array(5)),
        op("pnnx.Expression", "count", "c", "1", expr="int(@0)"),
        op("torch.narrow", "n", "0 1", "9", dim=0, start=0, labels=("input", "length")),
        OUT,
        _0=(8,),
    )
    once = applied(constant_folding, graph)
    assert expressions(once) == []
    assert once.operators[-2].params == {"dim": 0, "start": 0, "length": 5}


def test_a_small_seed_does_not_grow_into_a_large_constant() -> None:
    count = LARGE // 4 + 1
    grown = op("Tensor.expand", "grown", "c", "1", sizes=(count,))
    graph = built(INPUT, constant(data=GRID[0, :1]), grown, op("torch.add", "sum", "0 1", "9"), OUT, _0=(count,))
    assert_untouched(constant_folding, graph)


def test_a_small_constant_may_grow_and_a_large_one_by_its_factor() -> None:
    seed = np.ones((LARGE // 4 // GROWTH, 1), F32)
    grown = op("Tensor.expand", "grown", "c", "1", sizes=(-1, GROWTH))
    graph = built(INPUT, constant(data=seed), grown, op("torch.add", "sum", "0 1", "9"), OUT, _0=(len(seed), GROWTH))
    assert names(applied(constant_folding, graph)) == ["c", "pnnx_fold_1", "sum"]


@pytest.mark.parametrize(
    ("type", "params"),
    [("torch.randn_like", {}), ("aten::bernoulli", {}), ("F.dropout", {"training": True}), ("torch.normal", {})],
)
def test_random_operators_stay(type: str, params: dict[str, Any]) -> None:
    graph = built(
        INPUT,
        constant(data=np.full((2, 3), 0.5, F32)),
        *([op("pnnx.Expression", "none", "", "n", expr="None")] if type.startswith("aten") else []),
        op(type, "random", "c n" if type.startswith("aten") else "c", "1", **params),
        op("torch.add", "sum", "0 1", "9"),
        OUT,
        _0=(2, 3),
    )
    assert_untouched(constant_folding, graph)


def test_every_module_that_draws_random_numbers_is_known_as_such() -> None:
    drawing = {
        module for module, path in modules("engine.layers") if any("generator" in name for name in imported(path))
    }
    assert drawing | {"engine.layers.creation.randomness"} == RANDOM_MODULES


def test_a_layer_from_outside_is_not_run() -> None:
    with registry.extended():

        @register("mine.Counter")
        class Counter(Layer):
            def infer(self, input: TensorSpec) -> TensorSpec:
                return input

            def forward(self, input: np.ndarray) -> np.ndarray:
                raise AssertionError

        graph = built(
            INPUT, constant(), op("mine.Counter", "it", "c", "1"), op("torch.add", "sum", "0 1", "9"), OUT, _0=(2, 3)
        )
        assert_untouched(constant_folding, graph)


def test_what_would_fail_is_left_to_fail_in_the_run() -> None:
    graph = built(
        INPUT,
        constant(data=np.array([0, 1])),
        op("pnnx.Expression", "by_zero", "c", "1", expr="floor_divide(3,@0)"),
        op("torch.add", "sum", "0 1", "9"),
        OUT,
        _0=(2,),
    )
    assert_untouched(constant_folding, graph)


def test_a_size_that_only_the_file_claims_is_not_taken_for_known() -> None:
    graph = built(
        INPUT,
        op("aten::where", "where", "0", "1"),
        op("prim::ListUnpack", "unpack", "1", "2"),
        op("pnnx.Expression", "count", "2", "9", expr="size(@0,0)"),
        OUT,
        _0=(3,),
        _2=TensorSpec((2,), np.dtype(np.int64)),
    )
    assert constant_folding(graph) is graph.source
    assert int(execute(graph.plan, [np.array([1, 0, 0], F32)])[0]) == 1


def test_what_would_take_long_is_not_computed_ahead() -> None:
    side = 1100
    steps = [op("torch.matmul", f"m{k}", f"{k} c", f"{k + 1}") for k in range(1, 8)]
    graph = built(
        INPUT,
        constant(data=np.zeros((side, side), F32)),
        op("torch.matmul", "m0", "c c", "1"),
        *steps,
        op("torch.add", "sum", "0 8", "9"),
        OUT,
        _0=(side, side),
    )
    assert_untouched(constant_folding, graph)


@pytest.mark.parametrize(
    ("type", "given"),
    [
        ("nn.MaxPool1d", {"kernel_size": (2**19,), "padding": (2**18,)}),
        ("nn.AdaptiveAvgPool1d", {"output_size": (3,)}),
    ],
)  # fmt: skip
def test_what_loops_is_not_computed_ahead(type: str, given: dict[str, Any]) -> None:
    signal = np.zeros((1, 1, 2**18), F32)
    graph = built(
        INPUT, constant(data=signal), op(type, "p", "c", "1", **given), op("torch.add", "s", "0 1", "9"), OUT, _0=(1,)
    )
    assert_untouched(constant_folding, graph)


def test_many_constants_take_no_more_memory_together_than_a_few() -> None:
    each, count = LARGE // 4, MADE // LARGE + 10
    made = [op("torch.zeros", f"z{k}", "", f"z{k}", size=(each,)) for k in range(count)]
    turned = [op("torch.flip", f"t{k}", f"z{k}", f"t{k}", dims=(0,)) for k in range(count)]
    everything = " ".join(f"t{k}" for k in range(count))
    graph = built(INPUT, *made, *turned, op("torch.cat", "cat", f"0 {everything}", "9", dim=0), OUT, _0=(each,))
    stored = [o for o in constant_folding(graph).operators if o.type == "pnnx.Attribute"]
    assert 0 < sum(o.attributes["data"].data.nbytes for o in stored) <= MADE


def test_a_sum_of_many_constants_is_found_in_time_in_proportion_to_it() -> None:
    count = 600
    constants = [constant(f"c{k}") for k in range(count)]
    sums = [op("torch.add", f"s{k}", f"{f's{k - 1}' if k else 'c0'} c{k}", f"s{k}") for k in range(count)]
    graph = built(INPUT, *constants, *sums, op("torch.add", "sum", f"0 s{count - 1}", "9"), OUT, _0=(2, 3))
    tracemalloc.start()
    made = constant_folding(graph)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(o.type == "torch.add" for o in made.operators) == 1
    assert peak < count * 5_000


def test_folding_stops_between_two_operators_when_it_is_cancelled() -> None:
    chain = [op("torch.sin", f"s{k}", f"{k}", f"{k + 1}") for k in range(1, 8)]
    constants = op("torch.zeros", "zeros", "", "1", size=(3,))
    graph = built(INPUT, constants, *chain, op("torch.add", "sum", "0 8", "9"), OUT, _0=(3,))
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        if asked == 9:
            raise RunCancelledError("the request was cancelled")

    with pytest.raises(RunCancelledError, match="the request was cancelled"):
        optimise(graph, off=[each for each in PASSES if each != "constant_folding"], before_each=ask)


def test_what_only_values_tell_the_size_of_is_not_computed_ahead() -> None:
    graph = built(
        INPUT,
        constant(data=GRID[0, :2]),
        constant("counts", np.array([2**29, 1])),
        op("torch.repeat_interleave", "r", "c counts", "1", labels=("input", "repeats"), dim=0),
        op("torch.add", "sum", "0 1", "9"),
        OUT,
        _0=(1,),
    )
    assert_untouched(constant_folding, graph)


@pytest.mark.parametrize("text", ["add(sin(@0)," * 60 + "@0" + ")" * 60, "add(" * 60 + "@0" + ",cos(@0))" * 60])
@pytest.mark.parametrize("of_input", ["add(@1,{})", "{}"], ids=["a part", "the whole"])
def test_folding_a_long_expression_takes_a_few_times_its_operand(text: str, of_input: str) -> None:
    data = np.linspace(0, 1, 1 << 17, dtype=F32)
    graph = built(
        INPUT,
        constant(data=data),
        op("pnnx.Expression", "long", "c 0", "1", expr=of_input.format(text)),
        op("pnnx.Expression", "last", "0 1", "9", expr="add(@0,@1)"),
        OUT,
        _0=data.shape,
    )
    tracemalloc.start()
    try:
        made = constant_folding(graph)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made is not graph.source
    assert peak < 8 * data.nbytes


def test_an_expression_that_would_lay_out_too_much_on_the_way_is_left_to_the_run() -> None:
    long = "add(@0," * 7 + "@0" + ")" * 7
    graph = built(
        INPUT,
        constant("c", np.zeros((1 << 14, 1), F32)),
        constant("d", np.zeros((1, 1 << 14), F32)),
        op("pnnx.Expression", "wide", "c d", "1", expr=f"size(add({long},@1),0)"),
        op("pnnx.Expression", "sum", "0 1", "9", expr="add(@0,@1)"),
        OUT,
        _0=(3, 2),
    )
    tracemalloc.start()
    try:
        optimise(graph)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 24
