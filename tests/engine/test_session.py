"""Arguments of run(), and its results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from engine import (
    ExecutionError,
    GraphError,
    InputError,
    Layer,
    ParameterError,
    RuntimeGraph,
    Session,
    TensorSpec,
    registry,
)
from engine.tensor import Array
from tests.engine.graph.build import F32, INPUT, built, op

X = np.arange(6, dtype=F32).reshape(2, 3) - 2
OUTPUT = op("pnnx.Output", "out", "1")


@pytest.fixture
def relu() -> RuntimeGraph:
    return built(INPUT, op("nn.ReLU", "relu", "0", "1"), OUTPUT, _0=(2, 3))


@pytest.mark.parametrize(
    "inputs",
    [
        [X],
        (X,),
        X,
        {"in0": X},
        {"pnnx_input_0": X},
        {"0": X},
        [X.tolist()],
        [X.astype(">f4")],
        [np.asfortranarray(X)],
        [np.repeat(X, 2, axis=1)[:, ::2]],
        [X.astype(int).tolist()],
    ],
    ids=["list", "tuple", "array", "by name", "by operator", "by operand", "lists", "swapped", "F", "strided", "ints"],
)
def test_inputs_come_in_every_reasonable_form(relu: RuntimeGraph, inputs: Any) -> None:
    output = Session(relu).run(inputs)[0]
    np.testing.assert_array_equal(output, np.maximum(X, 0))
    assert output.dtype == F32


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "wrong number of inputs: found 0, expected 1 (in0)"),
        ([X, X], "wrong number of inputs: found 2, expected 1 (in0)"),
        ({"x": X}, "input 'in0' is missing: found x, expected in0"),
        ({"in0": X, "y": X}, "unknown input 'y', expected in0"),
        (None, "inputs are neither a sequence nor a mapping: found NoneType"),
        ("text", "inputs are neither a sequence nor a mapping: found str"),
        ([X.astype(np.float64)], "input 'in0': wrong dtype: found float64, expected float32"),
        ([X[0]], "input 'in0': wrong rank: found [3] with 1 dimensions, expected 2 ([?, 3])"),
        ([X[:, :2]], "input 'in0': wrong shape: found [2, 2], expected [?, 3]"),
        ([[[1, 2], [3]]], "input 'in0': not an array: found list: setting an array element with a sequence."),
        ([[["a"]]], "input 'in0': not an array of numbers: found list"),
        ([[[1j] * 3] * 2], "input 'in0': numbers of the wrong kind: found complex128, expected float32"),
    ],
)
def test_inputs_that_do_not_fit_are_named(relu: RuntimeGraph, inputs: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Session(relu).run(inputs)
    assert message in str(caught.value)


@pytest.mark.parametrize("seen", [[X], (X,), X, {"in0": X}, {"0": X}], ids=["list", "tuple", "array", "name", "alias"])
def test_what_does_not_fit_is_refused_also_where_other_inputs_of_its_shapes_were_run(
    relu: RuntimeGraph, seen: Any
) -> None:
    session = Session(relu)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(seen)[0], np.maximum(X, 0))
    for wrong in ({0: X}, {"x": X}, {"in0": X, "0": X}, [X, X], [X.astype(np.float64)], {"in0": X[:, :2]}, [X.T]):
        with pytest.raises(InputError):
            session.run(wrong)
    for other in ([X.astype(">f4")], [X.view(np.matrix)], [X[::-1]], [X.tolist()], [np.repeat(X, 3, axis=0)]):
        expected = np.maximum(np.array(other[0], F32), 0)
        np.testing.assert_array_equal(session.run(other)[0], expected)


def test_an_array_that_was_given_twice_stands_for_neither_of_two_inputs_later() -> None:
    second = op("pnnx.Input", "second", "", "1")
    graph = built(INPUT, second, op("pnnx.Expression", "e", "0 1", "2", expr="sub(@0,@1)"),
                  op("pnnx.Output", "out", "2"), _0=(2, 3), _1=(2, 3))  # fmt: skip
    session = Session(graph)
    for _ in range(2):
        np.testing.assert_array_equal(session.run([X, X])[0], X - X)
        np.testing.assert_array_equal(session.run([X, 3 * X])[0], X - 3 * X)
        np.testing.assert_array_equal(session.run({"in1": X, "in0": 3 * X})[0], 3 * X - X)


def test_outputs_share_no_memory_with_inputs_weights_or_each_other() -> None:
    weight = np.ones((2, 3), F32)
    net = built(
        INPUT,
        op("pnnx.Attribute", "w", "", "1", data=weight),
        op("prim::TupleConstruct", "t", "0 0 1 1", "2"),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3),
    )
    x = X.copy()
    outputs = Session(net).run([x])
    for index, output in enumerate(outputs):
        output += 1 + index
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(outputs[1], X + 2)
    np.testing.assert_array_equal(Session(net).run([x])[2], np.ones((2, 3)))


def test_many_threads_may_run_one_session(relu: RuntimeGraph) -> None:
    session = Session(relu)
    inputs = [np.random.default_rng(k).standard_normal((2, 3)).astype(F32) for k in range(64)]
    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda x: session.run([x])[0], inputs))
    for x, output in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(output, np.maximum(x, 0))


def test_profile_measures_every_operator(relu: RuntimeGraph) -> None:
    session = Session(relu)
    profile = session.run([X], profile=True).profile
    assert profile is not None
    assert [(entry["name"], entry["type"]) for entry in profile] == [("relu", "nn.ReLU")]
    assert profile[0]["time_us"] > 0
    assert session.run([X]).profile is None


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_fixed_batch_may_be_any(batch: int) -> None:
    net = built(INPUT, op("torch.flatten", "flat", "0", "1", start_dim=1, end_dim=-1), OUTPUT, _0=(1, 3, 2))
    x = np.random.default_rng(0).standard_normal((batch, 3, 2)).astype(F32)
    np.testing.assert_array_equal(Session(net).run([x])[0], x.reshape(batch, 6))


def test_items_of_a_batch_do_not_mix_where_an_operator_would_mix_them() -> None:
    net = built(INPUT, op("F.softmax", "mix", "0", "1", dim=0, labels=("input",)), OUTPUT, _0=(1, 3))
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(F32)
    np.testing.assert_array_equal(Session(net).run([x])[0], np.ones((4, 3)))


def test_a_batch_that_is_hard_coded_is_split_and_joined() -> None:
    net = built(INPUT, op("Tensor.reshape", "r", "0", "1", shape=(1, 6)), OUTPUT, _0=(1, 3, 2))
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(F32)
    np.testing.assert_array_equal(Session(net).run([x])[0], x.reshape(4, 6))


def test_a_batch_is_refused_where_no_output_carries_it() -> None:
    net = built(INPUT, op("torch.sum", "sum", "0", "1", labels=("input",)), OUTPUT, _0=(1, 3))
    with pytest.raises(
        InputError, match=r"does not take other batch sizes \(sum \(torch.sum\): the batch axis is lost\): found"
    ):
        Session(net).run([np.ones((2, 3), F32)])


def test_editing_the_graph_changes_nothing_in_its_sessions(relu: RuntimeGraph) -> None:
    session = Session(relu)
    relu.replace("relu", op("nn.Sigmoid", "sigmoid"))
    relu.build()
    np.testing.assert_array_equal(session.run([X])[0], np.maximum(X, 0))
    np.testing.assert_array_equal(session.run([X[:1]])[0], np.maximum(X[:1], 0))


def test_dynamic_dimensions_take_any_size() -> None:
    net = built(INPUT, op("nn.ReLU", "relu", "0", "1"), OUTPUT, _0=(1, None, None))
    assert Session(net).run([np.ones((1, 7, 2), F32)])[0].shape == (1, 7, 2)


def test_with_dynamic_dimensions_the_kernels_of_the_shapes_that_ran_last_are_told() -> None:
    net = built(INPUT, op("nn.ReLU", "relu", "0", "1"), OUTPUT, _0=(1, None, None))
    session = Session(net, backend="compiled", cache=None)
    before = session.describe()
    assert "compiler" not in before
    assert {row["name"]: row["kernel"] for row in before["operators"] if "kernel" in row} == {"relu": None}
    for shape in ((1, 7, 2), (1, 3, 3), (1, 7, 2)):
        session.run([np.ones(shape, F32)])
        told = session.describe()
        assert told["compiler"]["shapes"] == [list(shape)]
        assert {row["name"]: row["kernel"] for row in told["operators"] if "kernel" in row} == {"relu": "map"}


def test_a_layer_that_breaks_is_reported_with_its_operator() -> None:
    class Broken(Layer):
        """Divides by zero."""

        def infer(self, input: TensorSpec) -> TensorSpec:
            return input

        def forward(self, input: Array) -> Array:
            raise ZeroDivisionError("by zero")

    with registry.extended():
        registry.register("my.Broken")(Broken)
        net = built(INPUT, op("my.Broken", "b", "0", "1"), OUTPUT, _0=(2, 3))
    with pytest.raises(ExecutionError, match=r"^b \(my.Broken\): failed with ZeroDivisionError: by zero$"):
        Session(net).run([X])


def test_python_numbers_come_out_as_tensors() -> None:
    net = built(INPUT, op("pnnx.Expression", "e", "0", "1", expr="size(@0,1)"), OUTPUT, _0=(2, 3))
    output = Session(net).run([X])[0]
    assert (output.shape, output.dtype, int(output)) == ((), np.int64, 3)


@pytest.mark.parametrize(("given", "message"), [({"backend": "gpu"}, "unknown backend"), ({"threads": 0}, "positive")])
def test_session_arguments_are_checked(relu: RuntimeGraph, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Session(relu, **given)


def test_an_empty_batch_leaves_the_session_compiled(relu: RuntimeGraph) -> None:
    session = Session(relu)
    assert [session.run([np.zeros((rows, 3), F32)])[0].shape for rows in (2, 0, 2)] == [(2, 3), (0, 3), (2, 3)]
    assert session.backend == "compiled"


def test_what_is_no_graph_is_refused_by_name() -> None:
    with pytest.raises(GraphError, match=r"not a graph: found str, expected RuntimeGraph\(param, bin\)"):
        Session("model.pnnx.param")  # type: ignore[arg-type]


def test_the_old_option_measure_host_warns_and_changes_nothing() -> None:
    graph = built(INPUT, op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(1, 3))
    with pytest.warns(DeprecationWarning, match="measure_host"):
        session = Session(graph, backend="reference", measure_host=False)
    np.testing.assert_array_equal(session.run([np.float32([[-1, 0, 2]])])[0], [[0, 0, 2]])
