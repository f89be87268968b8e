"""``Session.prepare()`` of a graph with dynamic sizes compiles for typical ones, so that no request waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import engine
from engine.compiler.builder import Builder
from engine.errors import CompileError, EngineError, RunCancelledError, ShapeError
from engine.graph.typical_sizes import typical_specs
from engine.ir.tables import Table
from engine.options import Options
from engine.pnnx import Operator
from engine.tensor import TensorSpec
from tests.engine.graph.build import F32, built, conv, op

INPUT, OUTPUT = op("pnnx.Input", "in", "", "0"), op("pnnx.Output", "out", "1")


def graph_of(operator: Operator, **shapes: tuple[int | None, ...]) -> engine.RuntimeGraph:
    return built(INPUT, operator, OUTPUT, **shapes)


def relu(*shape: int | None) -> engine.RuntimeGraph:
    return graph_of(op("F.relu", "relu", "0", "1"), _0=shape)


@pytest.mark.parametrize(
    ("shape", "batch", "expected"),
    [
        ((None, 3, None, None), 1, (1, 3, 224, 224)),
        ((None, 3, None, None), 4, (4, 3, 224, 224)),
        ((None, None), 1, (1, 128)),
        ((None,), 1, (128,)),
        ((2, None, 40), 4, (2, 128, 40)),
    ],
)
def test_typical_sizes(shape: tuple[int | None, ...], batch: int, expected: tuple[int, ...]) -> None:
    found = typical_specs(relu(*shape), batch)
    assert found is not None
    assert [each.shape for each in found] == [expected]


def test_dimensions_of_one_name_have_one_size() -> None:
    add = op("pnnx.Expression", "add", "0 2", "1", expr="add(@0,@1)")
    graph = built(INPUT, op("pnnx.Input", "in1", "", "2"), add, OUTPUT, _0=(None, 1), _2=(1, 1, 1, None))
    names = {"0": ("n", None), "2": (None, None, None, "n")}
    found = typical_specs(graph.rebuilt(replace(graph.source, size_names=names)))
    assert found is not None
    assert [each.shape for each in found] == [(1, 1), (1, 1, 1, 1)]


def convolution(kernel: int) -> engine.RuntimeGraph:
    return graph_of(conv("conv", "0", "1", (1, 2), (kernel,)), _0=(1, 1, None))


@pytest.mark.parametrize(("kernel", "expected"), [(5, 128), (400, 1024), (5000, 8192), (10_000, None)])
def test_typical_sizes_are_multiplied_until_the_graph_accepts_them(kernel: int, expected: int | None) -> None:
    found = typical_specs(convolution(kernel))
    assert (found and found[0].shape[-1]) == expected


def test_a_graph_that_accepts_no_typical_size_is_compiled_later() -> None:
    session = engine.Session(convolution(10_000), cache=None)
    assert session.prepare() is None
    assert session.compile_failure is None


def test_the_first_request_of_any_size_finds_code() -> None:
    session = engine.Session(relu(None, 3, None, None), cache=None)
    session.prepare()
    x = np.random.default_rng(0).standard_normal((1, 3, 31, 77), np.float32)
    assert session.is_compiled([x], exact=False)
    np.testing.assert_array_equal(session.run([x])[0], np.maximum(x, 0))


def test_the_first_request_after_it_finds_touched_memory_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    session = engine.Session(linear(), backend="compiled", cache=None, threads=1)
    session.prepare()
    monkeypatch.setattr("engine.compiler.runtime.memory.new_arena", None)
    monkeypatch.setattr("engine.compiler.runtime.instances.Instance", None)
    x = np.ones((1, 200, 256), np.float32)
    (expected,) = engine.Session(linear(), backend="reference").run([x])
    assert session.estimate_bytes([x]) == expected.nbytes
    np.testing.assert_allclose(session.run([x])[0], expected, rtol=1e-4, atol=1e-4)


def test_a_graph_that_refuses_zeros_is_ready() -> None:
    divided = op("pnnx.Expression", "divided", "0", "1", expr="floor_divide(7,@0)")
    session = engine.Session(built(INPUT, divided, OUTPUT, _0=(None,)), cache=None)
    session.prepare()
    assert session.run([np.array([2, 3], np.float32)])[0].tolist() == [3, 2]


def test_the_numbers_of_a_new_size_are_computed_once_for_estimate_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    session = engine.Session(linear(), cache=None)
    session.prepare()
    computed = list[object]()
    call = Table.__call__
    monkeypatch.setattr(Table, "__call__", lambda table, sizes: (computed.append(sizes), call(table, sizes))[1])
    x = np.ones((1, 77, 256), np.float32)
    assert session.is_compiled([x], exact=False)
    assert session.estimate_bytes([x]) and session.run([x])
    assert computed == [[77]]


def test_a_second_call_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = engine.Session(relu(None, None), backend="compiled", cache=None)
    session.prepare()
    monkeypatch.setattr("engine.compiler.pipeline.CompilePipeline.template", None)
    session.prepare()
    with pytest.raises(CompileError):
        session.prepare(4)  # code for a batch of 1 is for no other


def test_a_program_beyond_the_memory_limit_leaves_smaller_sizes_to_the_first_request() -> None:
    session = engine.Session(relu(1, 3, None, None), backend="compiled", cache=None, instances_max_bytes=200_000)
    session.prepare()
    assert session.run([np.ones((1, 3, 2, 2), np.float32)])[0].sum() == 12


def test_it_can_be_cancelled() -> None:
    with pytest.raises(RunCancelledError):
        engine.Session(relu(1, 3, None, None), cache=None).prepare(cancelled=lambda: True)


def test_a_graph_without_a_kernel_fails_as_it_would_at_the_first_request() -> None:
    graph = graph_of(op("aten::exponential", "drawn", "0", "1"), _0=(None,))
    with pytest.raises(CompileError, match="no operator of the graph has a kernel"):
        engine.Session(graph, backend="compiled", cache=None).prepare()


def linear() -> engine.RuntimeGraph:
    """Return rows times a matrix, whose kernel takes 14 rows at once where there are so many."""
    weight = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    given = {"in_features": 256, "out_features": 256, "bias": False}
    return graph_of(op("nn.Linear", "linear", "0", "1", weight=weight, **given), _0=(1, None, 256))


def test_short_inputs_find_code_as_well_as_long_ones() -> None:
    session = engine.Session(linear(), cache=None)
    session.prepare()
    for length in (12, 128, 300):
        assert session.is_compiled([np.zeros((1, length, 256), np.float32)], exact=False)


def test_the_template_for_the_most_similar_sizes_runs() -> None:
    session = engine.Session(linear(), backend="compiled", cache=None)
    templates = {}
    for length in (128, 12):
        specs = [TensorSpec((1, length, 256), np.dtype(np.float32))]
        session.prepare(specs=specs)
        builder = session._executor.find(session.graph).builder  # type: ignore[union-attr]
        templates[length] = builder._templates._found[-1]
    assert templates[12] is not templates[128]
    for length, expected in ((200, 128), (64, 128), (16, 12), (3, 12)):
        found = builder._found_template([TensorSpec((1, length, 256), np.dtype(np.float32))])
        assert found is not None
        assert found[0] is templates[expected], length


def places() -> engine.RuntimeGraph:
    """Return a graph that computes five sines of each place of a positive element."""
    chosen = [
        op("F.relu", "positive", "0", "p"),
        op("torch.nonzero", "places", "p", "n"),
        op("Tensor.to", "float", "n", "f", dtype="torch.float"),
        *(op("torch.sin", f"sin{k}", "f" if k == 0 else f"s{k - 1}", f"s{k}") for k in range(5)),
    ]
    return built(INPUT, *chosen, op("pnnx.Output", "out", "s4"), _0=(None,))


def test_what_follows_from_sizes_that_values_decide_is_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    session = engine.Session(places(), cache=None)
    session.prepare()
    monkeypatch.setattr("engine.compiler.pipeline.CompilePipeline.template", None)
    monkeypatch.setattr("engine.session.policies.run_reference", None)
    for inferring in ("run", "infer"):  # inference of a new size would take milliseconds
        monkeypatch.setattr(f"engine.graph.building.subgraphs.Subgraph.{inferring}", None)
    monkeypatch.setattr("engine.compiler.pipeline.CompilePipeline.infer", None)
    x = np.array([0, 1, 2, 0, 3], np.float32)
    expected = np.array([[1], [2], [4]], np.float32)
    for _ in range(5):
        expected = np.sin(expected)
    np.testing.assert_allclose(session.run([x])[0], expected, rtol=1e-6)


def test_sizes_that_values_decide_stay_within_the_memory_of_a_request() -> None:
    session = engine.Session(places(), cache=None)
    session.prepare()

    def room(count: int) -> None:
        if count > 1_000_000:
            raise engine.ShapeError("out of memory for a tensor", found=count)

    with engine.asking_for_room(room):
        assert session.run([np.ones(10_000, np.float32)])[0].shape == (10_000, 1)
        with pytest.raises(EngineError, match="out of memory"):
            session.run([np.ones(300_000, np.float32)])


def test_a_program_for_one_shape_is_refused_like_the_reference_refuses_it() -> None:
    """The pieces of an odd size, of 2 and 1, would broadcast."""
    builder = Builder(graph_of(op("F.glu", "glu", "0", "1", dim=0), _0=(None, 2)), Options(threads=1, cache=None))
    assert builder.executable([TensorSpec((4, 2), F32)]).steps
    with pytest.raises(ShapeError, match="dimension 0 cannot be halved: found 3, expected an even size"):
        builder.executable([TensorSpec((3, 2), F32)])


def test_code_that_contains_a_size_as_a_float_serves_this_size_only() -> None:
    """Positions divided by their number: the code for 38 positions is in the cache of the process."""
    graph = built(
        INPUT,
        op("pnnx.Expression", "length", "0", "2", expr="size(@0,1)"),
        op("torch.arange", "positions", "2", "3", labels=("end",), dtype=None),
        op("pnnx.Expression", "wave", "0 3", "1", expr="add(@0,sin(div(@1,torch.float(size(@0,1)))))"),
        OUTPUT,
        _0=(None, None),
    )
    session = engine.Session(graph, backend="compiled", cache=None, threads=1)
    for rows, length in ((45, 38), (47, 129)):
        (found,) = session.run([np.zeros((rows, length), np.float32)])
        np.testing.assert_allclose(found[-1], np.sin(np.arange(length) / length), rtol=1e-6)
