"""Element-wise operators as expressions, compiled and run, against the reference layer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Apply, Expr, Number, Operand, apply
from engine.compiler.kernels.functions.math import FUNCTIONS
from engine.compiler.kernels.map import make_map
from engine.compiler.lowering.terms.term import CONVERTING, EXPRESSION_RULES, Term, term_of
from engine.graph.building.inference import split_outputs
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.binding import bind
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import Annotations
from engine.layers.definition.registry import registry
from engine.layers.elementwise.cast import To, TypeAs
from engine.layers.indexing.masking import MaskedFill, Where
from engine.tensor import UNKNOWN, Array, TensorSpec
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.layers.samples import Sample, all_samples
from tests.nightly import IS_NIGHTLY

FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Recorded:
    """An operator of a sample that lowers, with what flowed through it."""

    id: str
    operator: RuntimeOperator
    inputs: list[object]
    lowered: Term


@lru_cache(maxsize=1)
def recorded() -> list[Recorded]:
    return [each for sample in all_samples() if _has_a_rule(sample) for each in _lowered_in(sample)]


def _has_a_rule(sample: Sample) -> bool:
    """Return whether a type in the file has an expression rule: the other samples need not be loaded."""
    types = {line.split(maxsplit=1)[0] for line in sample.param.splitlines() if line}
    return any(each in registry and registry[each].layer in EXPRESSION_RULES for each in types)


def _lowered_in(sample: Sample) -> Iterator[Recorded]:
    with tempfile.TemporaryDirectory() as folder:
        graph = engine.load(*sample.extract(Path(folder)))
        values: dict[str, object] = dict(zip((p.operand for p in graph.inputs), sample.sets[0].inputs, strict=True))
        known = graph.infer([TensorSpec(each.shape, each.dtype) for each in sample.sets[0].inputs])
        for op in graph.operators:
            if op.layer is None:
                continue
            inputs = [values[each.name] for each in op.inputs]
            lowered = term_of(op.layer, [known.get(each.name, UNKNOWN) for each in op.inputs])
            if lowered is not None:
                yield Recorded(sample.id, op, inputs, lowered)
            results = split_outputs(op, op.layer.forward(inputs))
            values.update(zip((each.name for each in op.outputs), results, strict=True))


def evaluated(lowered: Term, inputs: list[object], shape: tuple[int, ...], level: str) -> Array:
    """Evaluate the tree for every element, its operands broadcast."""
    given = [inputs[each] if isinstance(each, int) else each for each in lowered.inputs]
    arrays = [np.array(each, np.float32, order="C") for each in given]
    strides = [tuple(stride // 4 for stride in np.broadcast_to(each, shape).strides) for each in arrays]
    result = np.empty(shape, np.float32)
    own = tuple(stride // 4 for stride in result.strides)
    kernel = make_map(shape, own, strides, lowered.tree, describe(level))
    run(kernel, level, [result, *arrays])
    return result


def test_expressions_compute_what_the_layers_do() -> None:
    answers = [(each, _answer(each)) for each in recorded()]
    cases = [(each, answer) for each, answer in answers if answer.size]
    # One sample of each tree at the host's level, one of each operator at the others: layers/test_layers.py runs all.
    of_each_tree = {each.lowered.tree: (each, answer) for each, answer in cases}
    of_each_operator = {type(each.operator.definition): (each, answer) for each, answer in cases}
    for level in LEVELS:
        few = of_each_tree if level == LEVELS[0] else of_each_operator
        for each, answer in cases if IS_NIGHTLY else few.values():
            found = evaluated(each.lowered, each.inputs, answer.shape, level)
            name = f"{each.id}: {each.operator.where}, {level}"
            np.testing.assert_allclose(found, answer, rtol=1e-5, atol=1e-6, err_msg=name)


def _answer(recorded: Recorded) -> Array:
    assert recorded.operator.layer is not None
    return np.asarray(recorded.operator.layer.forward(recorded.inputs))


def test_every_rule_is_met_in_a_sample() -> None:
    met = {type(each.operator.definition) for each in recorded() if each.operator.layer is not None}
    ours = {layer for layer in EXPRESSION_RULES if layer.__module__.startswith("engine.")}
    # Of masks known ahead, in other dtypes; quantisation has tests of its own.
    assert ours - met <= {To, TypeAs, MaskedFill, Where, *CONVERTING}


def test_rules_only_name_functions_there_are() -> None:
    assert {name for each in recorded() for name in names_of(each.lowered.tree)} <= set(FUNCTIONS)


def names_of(tree: Expr) -> set[str]:
    return {tree.name}.union(*map(names_of, tree.arguments)) if isinstance(tree, Apply) else set()


X, Y = Operand(0), Operand(1)
SPEC = TensorSpec((2, 3, 4, 5), FLOAT32)
CHANNELS: Array = np.array([1.0, 2.0, 4.0], np.float32)


def bound(type: str, n_inputs: int = 1, attributes: dict[str, Array] | None = None, **params: object) -> BoundLayer:
    annotations = Annotations(inputs=(None,) * n_inputs, outputs=(None,), labels=(None,) * n_inputs)
    return bind(registry[type], n_inputs=n_inputs, params=params, attributes=attributes or {}, annotations=annotations)


def tree_of(layer: BoundLayer, *inputs: object) -> Expr | None:
    lowered = term_of(layer, inputs or [SPEC])
    return None if lowered is None else lowered.tree


TREES = {
    "alpha": (bound("torch.add", 2, alpha=2), (SPEC, SPEC), apply("add", X, apply("mul", Y, 2.0))),
    "reversed": (bound("torch.rsub", 1, other=3, alpha=2), (SPEC,), apply("sub", 3.0, apply("mul", X, 2.0))),
    "one operand twice": (bound("torch.mul", 2), (SPEC, SPEC), apply("mul", X, Y)),
    "number operand": (bound("torch.mul", 2), (SPEC, 3), apply("mul", X, 3.0)),
    "dynamic parameter": (bound("F.leaky_relu", 2), (SPEC, 0.5), apply("leaky_relu", X, 0.5)),
    "exact quotient": (bound("torch.div", 1, other=8), (SPEC,), apply("mul", X, 0.125)),
    "quotient": (bound("torch.div", 1, other=3), (SPEC,), apply("div", X, 3.0)),
    "rounded down": (bound("torch.div", 2, rounding_mode="floor"), (SPEC, SPEC), apply("floor_divide", X, Y)),
    "truncated": (
        bound("torch.div", 2, rounding_mode="trunc"), (SPEC, SPEC), apply("trunc", apply("div", X, Y)),
    ),
    "square": (bound("torch.pow", 1, other=2), (SPEC,), apply("square", X)),
    "root": (bound("torch.pow", 1, other=0.5), (SPEC,), apply("sqrt", X)),
    "fourth": (bound("torch.pow", 1, other=4), (SPEC,), apply("square", apply("square", X))),
    "any power": (bound("torch.pow", 1, other=2.5), (SPEC,), apply("pow", X, 2.5)),
    "same dtype": (bound("Tensor.to", dtype="torch.float"), (SPEC,), X),
    "like other": (bound("Tensor.type_as", 2), (SPEC, SPEC), X),
    "folded numbers": (bound("pnnx.Expression", expr="mul(@0,sqrt(add(60,4)))"), (SPEC,), apply("mul", X, 8.0)),
    "cast in an expression": (bound("pnnx.Expression", expr="neg(torch.float(@0))"), (SPEC,), apply("neg", X)),
    "number input": (bound("pnnx.Expression", 2, expr="add(@1,div(@0,@1))"), (5, SPEC),
                     apply("add", X, apply("div", 5.0, X))),
    "overflow": (bound("torch.add", 1, other=1e300), (SPEC,), apply("add", X, float("inf"))),
    "float64": (bound("nn.ReLU"), (TensorSpec(SPEC.shape, np.dtype(np.float64)),), apply("relu", X)),
}  # fmt: skip


@pytest.mark.parametrize("case", TREES)
def test_trees_are(case: str) -> None:
    layer, inputs, expected = TREES[case]
    assert tree_of(layer, *inputs) == expected


INTEGER = TensorSpec(SPEC.shape, np.dtype(np.int64))
REFUSED = {
    "integers": (bound("nn.ReLU"), (INTEGER,)),
    "integers become float32": (bound("torch.sqrt"), (INTEGER,)),
    "mixed": (bound("torch.mul", 2), (SPEC, INTEGER)),
    "bool result": (bound("torch.gt", 2), (SPEC, SPEC)),
    "complex number": (bound("torch.mul", 1, other=1j), (SPEC,)),
    "another dtype": (bound("Tensor.to", dtype="torch.double"), (SPEC,)),
    "no tensor": (bound("torch.mul", 2), (2, 3)),
    "unknown number": (bound("torch.mul", 2), (SPEC, UNKNOWN)),
    "unknown parameter": (bound("F.leaky_relu", 2), (SPEC, UNKNOWN)),
    "computed weight a channel": (bound("F.prelu", 2), (SPEC, TensorSpec((3,), FLOAT32))),
    "statistics of the batch": (bound("F.batch_norm", 1, running_mean=None, running_var=None), (SPEC,)),
    "size": (bound("pnnx.Expression", expr="mul(@0,size(@0,1))"), (SPEC,)),
    "list": (bound("pnnx.Expression", expr="[@0,1]"), (SPEC,)),
    "bits": (bound("pnnx.Expression", 2, expr="and(@0,@1)"), (INTEGER, INTEGER)),
    "no map": (bound("nn.Softmax", dim=1), (SPEC,)),
    "long expression": (bound("pnnx.Expression", expr="neg(" * 500 + "@0" + ")" * 500), (SPEC,)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_map_of_floats_is_refused(case: str) -> None:
    layer, inputs = REFUSED[case]
    assert term_of(layer, inputs) is None


def test_a_weight_for_every_channel_is_broadcast_along_axis_1() -> None:
    for layer, inputs in (
        (bound("nn.PReLU", attributes={"weight": CHANNELS}), [SPEC]),
        (bound("F.prelu", 2), [SPEC, CHANNELS]),
    ):
        lowered = term_of(layer, inputs)
        assert lowered is not None and lowered.tree == apply("prelu", X, Y)
        assert lowered.inputs[0] == 0 and np.shape(lowered.inputs[1]) == (3, 1, 1)


def test_constant_operands_keep_their_index() -> None:
    lowered = term_of(bound("torch.add", 2), [SPEC, np.ones((4, 5), np.float32)])
    assert lowered is not None and lowered.inputs == (0, 1)


def test_equal_specs_are_two_operands() -> None:
    lowered = term_of(bound("torch.sub", 2), [SPEC, SPEC])
    assert lowered is not None and lowered.inputs == (0, 1)


def test_batch_norm_is_a_scale_and_a_shift() -> None:
    attributes = dict(zip(("running_mean", "running_var", "weight", "bias"), (CHANNELS,) * 4, strict=True))
    layer = bound("nn.BatchNorm2d", attributes=attributes, num_features=3, affine=True, eps=1e-5)
    lowered = term_of(layer, [SPEC])
    x = np.linspace(-3, 3, 120, dtype=np.float32).reshape(2, 3, 4, 5)
    assert lowered is not None
    np.testing.assert_allclose(evaluated(lowered, [x], x.shape, LEVELS[0]), layer.forward([x]), rtol=1e-5, atol=1e-6)


def test_numbers_are_rounded_to_float32() -> None:
    tree = tree_of(bound("torch.add", 1, other=0.1))
    assert tree == apply("add", X, Number(float(np.float32(0.1))))
