"""States: inputs that the last run computed, with a running sum, a recurrent layer, and keys that grow in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.errors import InputError
from engine.graph.feedback import Feedback
from engine.graph.port import Port
from engine.session.state import State
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.onnx_files.models import model, node, onnx, save, value

HEADS, GROUPS, WIDTH = 4, 2, 16
CODES = {"float32": 1, "float16": 10, "bfloat16": 16}
CACHES = {"new_key": "past_key", "new_value": "past_value"}
BACKENDS = ("reference", "compiled", "auto")
every_backend = pytest.mark.parametrize("backend", BACKENDS)
Build = Callable[[Path], engine.RuntimeGraph]


def running_sum(folder: Path) -> engine.RuntimeGraph:
    nodes = [node("Add", ["x", "sum"], ["total"]), node("Mul", ["total", "half"], ["y"])]
    return engine.load(
        save(
            folder,
            model(
                nodes,
                [value("x", ["n", 3]), value("sum", ["n", 3])],
                [value("y", ["n", 3]), value("total", ["n", 3])],
                {"half": np.float32(0.5)},
            ),
        )
    )


def recurrent(folder: Path) -> engine.RuntimeGraph:
    """Build an LSTM of 5 features and 7 cells whose last states are outputs."""
    random = np.random.default_rng(2)
    weights = {
        name: random.standard_normal(shape).astype(np.float32) / 3
        for name, shape in {"w": (1, 28, 5), "r": (1, 28, 7), "b": (1, 56)}.items()
    }
    nodes = [node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "new_h", "new_c"], hidden_size=7)]
    inputs = [value("x", ["t", 1, 5]), value("h", [1, 1, 7]), value("c", [1, 1, 7])]
    outputs = [value("y", ["t", 1, 1, 7]), value("new_h", [1, 1, 7]), value("new_c", [1, 1, 7])]
    return engine.load(save(folder, model(nodes, inputs, outputs, weights)))


def decoder(folder: Path) -> engine.RuntimeGraph:
    """Build attention of ONNX with past keys, causal, with grouped heads."""
    made = node(
        "Attention",
        ["q", "k", "v", "", "past_key", "past_value"],
        ["y", "new_key", "new_value"],
        q_num_heads=HEADS,
        kv_num_heads=GROUPS,
        is_causal=1,
    )
    return engine.load(save(folder, model([made], _inputs(), _outputs(), opset=23)))


def grouped(folder: Path, dtype: str = "float32") -> engine.RuntimeGraph:
    """Build GroupQueryAttention as exporters of onnxruntime do: the numbers of keys come from an attention mask."""
    nodes = [
        node("ReduceSum", ["mask", "last"], ["counted"], keepdims=0),
        node("Sub", ["counted", "one"], ["ends"]),
        node("Cast", ["ends"], ["lengths"], to=6),
        node("Shape", ["mask"], ["sizes"]),
        node("Gather", ["sizes", "place"], ["count"], axis=0),
        node("Cast", ["count"], ["total"], to=6),
        onnx.helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_key", "past_value", "lengths", "total", "cos", "sin"],
            ["y", "new_key", "new_value"],
            name="attention",
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=1,
        ),
    ]
    angles = np.outer(np.arange(32768), 1 / 100 ** np.linspace(0, 1, WIDTH // 2))
    constants = {
        "last": np.array([1]), "one": np.array(1), "place": np.array(1), "cos": np.cos(angles).astype(dtype),
        "sin": np.sin(angles).astype(dtype),
    }  # fmt: skip
    inputs = [*_inputs(CODES[dtype]), value("mask", ["b", "t"], 7)]
    proto = model(nodes, inputs, _outputs(CODES[dtype]), constants, domains=["com.microsoft"])
    return engine.load(save(folder, proto))


def of_16_bits(dtype: str) -> Build:
    def build(folder: Path) -> engine.RuntimeGraph:
        return grouped(folder, dtype)

    build.__name__ = dtype
    return build


def dtype_of(graph: engine.RuntimeGraph) -> np.dtype[Any]:
    spec = graph.inputs[0].spec
    assert spec is not None
    return spec.dtype


def _inputs(code: int = 1) -> list[object]:
    return [
        value("q", ["b", "s", HEADS * WIDTH], code),
        value("k", ["b", "s", GROUPS * WIDTH], code),
        value("v", ["b", "s", GROUPS * WIDTH], code),
        value("past_key", ["b", GROUPS, "p", WIDTH], code),
        value("past_value", ["b", GROUPS, "p", WIDTH], code),
    ]


def _outputs(code: int = 1) -> list[object]:
    caches = [value(name, ["b", GROUPS, "t", WIDTH], code) for name in ("new_key", "new_value")]
    return [value("y", ["b", "s", HEADS * WIDTH], code), *caches]


def tokens(graph: engine.RuntimeGraph, count: int, past: int, batch: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(past)
    sizes = {"q": HEADS * WIDTH, "k": GROUPS * WIDTH, "v": GROUPS * WIDTH}
    dtype = dtype_of(graph)
    given = {name: random.standard_normal((batch, count, size)).astype(dtype) for name, size in sizes.items()}
    if any(port.name == "mask" for port in graph.inputs):
        given["mask"] = np.ones((batch, past + count), np.int64)
    return given


def session_of(graph: engine.RuntimeGraph, states: dict[str, str], backend: str, capacity: int = 700) -> engine.Session:
    return engine.Session(
        graph,
        backend=backend,
        cache=None,
        threads=1,
        states=states,
        state_capacity=capacity,  # type: ignore[arg-type]
    )


every_decoder = pytest.mark.parametrize(
    "build", [decoder, grouped, of_16_bits("float16"), of_16_bits("bfloat16")], ids=lambda build: build.__name__
)


@every_backend
def test_a_running_sum_adds_up_over_runs(backend: str, tmp_path: Path) -> None:
    session = session_of(running_sum(tmp_path), {"total": "sum"}, backend)
    states = session.new_state(batch=2), session.new_state({"sum": np.full((2, 3), 10, np.float32)})
    for step in range(1, 6):
        for state, first in zip(states, (0, 10), strict=True):
            (y,) = session.run([np.ones((2, 3), np.float32)], state=state)
            np.testing.assert_array_equal(y, np.full((2, 3), (first + step) / 2, np.float32))
    assert states[0].arrays["sum"][0, 0] == 5
    assert states[0].length == 0


@every_backend
def test_a_recurrent_layer_goes_on_where_it_stopped(backend: str, tmp_path: Path) -> None:
    graph = recurrent(tmp_path)
    x = np.random.default_rng(0).standard_normal((30, 1, 5)).astype(np.float32)
    zeros = np.zeros((1, 1, 7), np.float32)
    whole = engine.Session(graph, backend="reference").run({"x": x, "h": zeros, "c": zeros})[0]
    session = session_of(graph, {"new_h": "h", "new_c": "c"}, backend)
    state = session.new_state()
    parts = [session.run({"x": x[first : first + 6]}, state=state)[0] for first in range(0, 30, 6)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-5)


@every_backend
@every_decoder
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_over_a_growing_cache_gives_the_answers_of_a_given_past(
    build: Build, batch: int, backend: str, tmp_path: Path
) -> None:
    graph = build(tmp_path)
    stateless = engine.Session(graph, backend="reference")
    session = session_of(graph, CACHES, backend)
    state = session.new_state(batch=batch)
    dtype = dtype_of(graph)
    past = {name: np.zeros((batch, GROUPS, 0, WIDTH), dtype) for name in CACHES.values()}
    for count in (9, 1, 1, 1, 3, 1, 600, 1, 1):
        given = tokens(graph, count, state.length, batch)
        y, key, values = stateless.run({**given, **past})
        past = {"past_key": key, "past_value": values}
        outputs = session.run(given, state=state)
        assert outputs.names == ("y",)
        _check_close(outputs[0], y, rtol=1e-4, atol=1e-5)
        for name, wanted in past.items():
            _check_close(state.arrays[name], wanted, rtol=1e-5, atol=1e-6)


def test_a_decoder_in_float16_gives_the_answers_of_onnxruntime(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = grouped(tmp_path, "float16")
    theirs = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    session = session_of(graph, CACHES, "compiled")
    state = session.new_state()
    past = {name: np.zeros((1, GROUPS, 0, WIDTH), np.float16) for name in CACHES.values()}
    for count in (40, 1, 1, 3, 1):
        given = tokens(graph, count, state.length)
        y, *caches = theirs.run(None, {**given, **past})
        past = dict(zip(CACHES.values(), caches, strict=True))
        _check_close(session.run(given, state=state)[0], y, rtol=0, atol=0)
        for name, wanted in past.items():
            _check_close(state.arrays[name], wanted, rtol=0, atol=0)


@every_decoder
@pytest.mark.parametrize("at_end", [False, True])
def test_a_state_may_lie_next_to_an_inaccessible_page(
    at_end: bool, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buffer(feedback: Feedback, port: Port, given: Array) -> Array:
        shape = feedback.whole(TensorSpec(given.shape, given.dtype)).sizes
        return guarded_array(np.zeros(shape, given.dtype), at_end=at_end, dtype=given.dtype)

    monkeypatch.setattr(State, "_buffer", staticmethod(buffer))
    graph = build(tmp_path)
    sessions = [session_of(graph, CACHES, backend, capacity=67) for backend in ("compiled", "reference")]
    states = [session.new_state(batch=3) for session in sessions]
    for count in (58, 1, 1, 5, 1, 1):
        given = tokens(graph, count, states[0].length, batch=3)
        found, wanted = (session.run(given, state=state)[0] for session, state in zip(sessions, states, strict=True))
        _check_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert states[0].length == 67


def _check_close(found: Array, wanted: Array, *, rtol: float, atol: float) -> None:
    """Compare with these tolerances of float32, or with a unit in the last place of 16-bit floats."""
    unit = {"float32": 0.0, "float16": 2**-10, "bfloat16": 2**-7}[found.dtype.name]
    assert found.dtype == wanted.dtype
    pair = found.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(*pair, rtol=max(rtol, unit), atol=max(atol, unit / 16))


@every_decoder
def test_machine_code_appends_in_place(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build(tmp_path)
    session = session_of(graph, CACHES, "compiled")
    state = session.new_state()
    session.run(tokens(graph, 20, 0), state=state)
    first = {name: array.__array_interface__["data"][0] for name, array in state.arrays.items()}
    monkeypatch.setattr("engine.session.state._stored", _refuse_to_copy)
    for _ in range(5):
        earlier = {name: array.copy() for name, array in state.arrays.items()}
        kept = state.arrays["past_key"]
        session.run(tokens(graph, 1, state.length), state=state)
        assert np.shares_memory(kept, state.arrays["past_key"])
        for name, array in state.arrays.items():
            assert array.__array_interface__["data"][0] == first[name]
            np.testing.assert_array_equal(array[:, :, :-1], earlier[name])


def _refuse_to_copy(result: Array, buffer: Array, axis: int) -> Array:
    assert result.__array_interface__["data"] == buffer.__array_interface__["data"]
    return buffer[(slice(None),) * axis + (slice(result.shape[axis]),)]


@every_decoder
def test_no_step_of_a_new_token_copies_the_past(build: Build, tmp_path: Path) -> None:
    graph = build(tmp_path)
    session = session_of(graph, CACHES, "compiled", capacity=30_000)
    state = session.new_state({name: _keys(20_000).astype(dtype_of(graph)) for name in CACHES.values()})
    times_us, copies_us = [], []
    for _ in range(5):
        outputs = session.run(tokens(graph, 1, state.length), profile=True, state=state)
        keys = state.arrays["past_key"].size
        copying = [row for row in outputs.kernels if row["kernel"] in ("map", "transpose")]
        assert copying and all(row["bytes"] < keys for row in copying), copying
        times_us.append(sum(row["time_us"] for row in outputs.kernels if row["kernel"] != "attention"))
        start = time.perf_counter()
        state.arrays["past_key"].copy()
        copies_us.append((time.perf_counter() - start) * 1e6)
    assert min(times_us) < min(copies_us)


def _keys(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((1, GROUPS, count, WIDTH), np.float32)


def test_a_full_state_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    graph = decoder(tmp_path)
    for backend in BACKENDS:
        session = session_of(graph, CACHES, backend, capacity=12)
        state = session.new_state()
        session.run(tokens(graph, 10, 0), state=state)
        session.run(tokens(graph, 2, 10), state=state)
        earlier = state.arrays["past_key"].copy()
        with pytest.raises(InputError, match=r"input 'past_key': the state is full.*13.*at most 12 \(state_capacity\)"):
            session.run(tokens(graph, 1, 12), state=state)
        assert state.length == 12
        np.testing.assert_array_equal(state.arrays["past_key"], earlier)
        state.truncate(3)
        assert session.run(tokens(graph, 9, 3), state=state)[0].shape == (1, 9, HEADS * WIDTH)
        assert state.length == 12


@every_backend
def test_a_window_that_moves_along_a_state_is_no_growth_in_place(backend: str, tmp_path: Path) -> None:
    nodes = [
        node("Slice", ["past", "begin", "end", "axis"], ["rest"]),
        node("Concat", ["rest", "x"], ["new"], axis=1),
        node("ReduceSum", ["past", "axis"], ["before"], keepdims=0),
    ]
    constants = {"begin": np.array([2]), "end": np.array([2**62]), "axis": np.array([1])}
    inputs = [value("x", ["b", "s"]), value("past", ["b", "p"])]
    graph = engine.load(
        save(tmp_path, model(nodes, inputs, [value("new", ["b", "t"]), value("before", ["b"])], constants))
    )
    session = session_of(graph, {"new": "past"}, backend)
    state = session.new_state({"past": np.arange(7, dtype=np.float32)[None]})
    wanted = list(range(7))
    for step in range(4):
        (before,) = session.run([np.full((1, 3), 10 + step, np.float32)], state=state)
        assert before[0] == sum(wanted)
        wanted = [*wanted[2:], *[10 + step] * 3]
        np.testing.assert_array_equal(state.arrays["past"], [wanted])


def test_streams_have_states_of_their_own(tmp_path: Path) -> None:
    graph = decoder(tmp_path)
    session = session_of(graph, CACHES, "compiled")
    states = [session.new_state() for _ in range(3)]
    answers = [[session.run(tokens(graph, 1, at), state=state)[0] for at in range(4)] for state in states]
    for each in answers[1:]:
        np.testing.assert_array_equal(each, answers[0])
    assert not np.shares_memory(states[0].arrays["past_key"], states[1].arrays["past_key"])


def test_wrong_uses_of_states_are_refused(tmp_path: Path) -> None:
    graph = decoder(tmp_path)
    with pytest.raises(InputError, match="unknown output 'nothing'"):
        engine.Session(graph, states={"nothing": "past_key"})
    with pytest.raises(InputError, match="unknown input 'nothing'"):
        engine.Session(graph, states={"new_key": "nothing"})
    with pytest.raises(InputError, match="two outputs are the next value of one state"):
        engine.Session(graph, states={"new_key": "past_key", "new_value": "past_key"})
    session = session_of(graph, CACHES, "reference")
    with pytest.raises(InputError, match="needs a state"):
        session.run(tokens(graph, 1, 0))
    with pytest.raises(InputError, match="'q' is not the input of a state"):
        session.new_state({"q": np.zeros((1, 1, 64), np.float32)})
    with pytest.raises(InputError, match="the session has no states"):
        engine.Session(graph).new_state()


def test_estimates_know_what_a_state_holds(tmp_path: Path) -> None:
    session = engine.Session(decoder(tmp_path), backend="compiled", states=CACHES, state_capacity=64)
    state, random = session.new_state(), np.random.default_rng(3)

    def step() -> dict[str, Array]:
        sizes = {"q": HEADS, "k": GROUPS, "v": GROUPS}
        return {name: random.standard_normal((1, 1, count * WIDTH), np.float32) for name, count in sizes.items()}

    assert not session.is_compiled(step(), state)
    for _ in range(3):
        session.run(step(), state=state)
    assert session.is_compiled(step(), state)  # of a length never met
    assert session.estimate_bytes(step(), state) >= HEADS * WIDTH * 4
    with pytest.raises(InputError):
        session.is_compiled({}, state)
