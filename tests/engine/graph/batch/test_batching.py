"""A graph exported at batch 1 answers any batch as the items alone would be answered."""

from __future__ import annotations

import numpy as np
import pytest

from engine import InputError, RuntimeGraph, Session
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op

RANDOM = np.random.default_rng(0)


def chain(*operators: Operator, _0: tuple[int, ...] = (1, 4, 6)) -> RuntimeGraph:
    """A graph from operand 0 to the last operator's first output."""
    return built(INPUT, *operators, op("pnnx.Output", "out", operators[-1].outputs[0]), _0=_0)


CASES = {
    "reshape to one row": chain(op("Tensor.reshape", "flat", "0", "1", shape=(1, -1))),
    "reshape with everything fixed": chain(op("Tensor.reshape", "r", "0", "1", shape=(1, 2, 2, 6))),
    "windows": chain(
        op("Tensor.reshape", "cut", "0", "1", shape=(1, 2, 2, 2, 3)),
        op("Tensor.permute", "swap", "1", "2", dims=(0, 1, 3, 2, 4)),
        op("Tensor.reshape", "windows", "2", "3", shape=(4, 2, 3)),
        op("nn.ReLU", "relu", "3", "4"),
        op("Tensor.reshape", "join", "4", "5", shape=(1, 24)),
    ),
    "heads of a sequence-first tensor": chain(
        op("torch.transpose", "swap", "0", "1", dim0=0, dim1=1),
        op("Tensor.reshape", "heads", "1", "2", shape=(4, 3, 2)),
        op("torch.transpose", "back", "2", "3", dim0=0, dim1=1),
        op("Tensor.reshape", "join", "3", "4", shape=(1, 3, 4, 2)),
    ),
    "class token": chain(
        op("pnnx.Attribute", "token", "", "t", data=RANDOM.standard_normal((1, 1, 6)).astype(F32)),
        op("torch.cat", "cat", "t 0", "1", dim=1),
    ),
    "a mask for every window": chain(
        op("Tensor.reshape", "windows", "0", "1", shape=(2, 2, 6)),
        op("pnnx.Attribute", "mask", "", "m", data=RANDOM.standard_normal((2, 2, 6)).astype(F32)),
        op("pnnx.Expression", "add", "1 m", "2", expr="add(@0,@1)"),
        op("Tensor.reshape", "join", "2", "3", shape=(1, 24)),
    ),
    "expanded constant": chain(
        op("pnnx.Attribute", "token", "", "t", data=RANDOM.standard_normal((1, 6)).astype(F32)),
        op("Tensor.expand", "grow", "t", "e", sizes=(1, 4, 6)),
        op("pnnx.Expression", "add", "0 e", "1", expr="add(@0,@1)"),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [2, 3])
def test_a_batch_gives_what_its_items_give_alone(name: str, batch: int) -> None:
    session = Session(CASES[name])
    x = RANDOM.standard_normal((batch, *CASES[name].inputs[0].spec.shape[1:])).astype(F32)  # type: ignore[union-attr]
    together = session.run([x])[0]
    apart = np.concatenate([session.run([item[None]])[0] for item in x])
    np.testing.assert_allclose(together, apart, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_hard_coded_batches_are_generalised(name: str) -> None:
    assert Session(CASES[name]).describe()["batch"] == {"mode": "any", "exported": 1, "reason": None}


def test_a_fixed_batch_with_dynamic_sizes_takes_any_batch() -> None:
    flat = op("torch.flatten", "flat", "1", "2", start_dim=2, end_dim=-1, labels=("input",))
    net = built(INPUT, op("nn.ReLU", "relu", "0", "1"), flat, op("pnnx.Output", "out", "2"), _0=(1, 3, None, None))
    session = Session(net)
    x = RANDOM.standard_normal((4, 3, 5, 7)).astype(F32)
    np.testing.assert_array_equal(session.run([x])[0], np.maximum(x, 0).reshape(4, 3, 35))
    assert session.batching.mode == "any"


def test_weights_are_shared_with_the_graph_for_any_batch() -> None:
    graph = CASES["class token"]
    general = graph.for_any_batch()
    layers = {each.name: each.layer for each in general.operators}
    assert layers["token"] is next(each for each in graph.operators if each.name == "token").layer


def test_items_are_kept_apart_where_an_operator_would_mix_them() -> None:
    session = Session(chain(op("F.softmax", "mix", "0", "1", dim=0, labels=("input",))))
    np.testing.assert_array_equal(session.run([np.zeros((3, 4, 6), F32)])[0], np.ones((3, 4, 6)))
    assert session.batching.mode == "split"
    assert session.batching.reason == (
        "items are not proved independent: mix (F.softmax) normalises along the batch axis"
    )


def test_the_operator_that_forbids_a_batch_is_named() -> None:
    session = Session(
        chain(
            op("Tensor.select", "first", "0", "1", dim=0, index=0, labels=("input",)),
            op("torch.unsqueeze", "again", "1", "2", dim=0, labels=("input",)),
        )
    )
    assert session.batching.mode == "split"
    assert session.batching.reason == "first (Tensor.select): the batch axis is lost"
    x = RANDOM.standard_normal((3, 4, 6)).astype(F32)
    np.testing.assert_array_equal(session.run([x])[0], x)


def test_a_batch_of_mixed_items_takes_no_other_size() -> None:
    """Refuse other sizes: results of two mixed items say nothing about four."""
    session = Session(chain(op("F.softmax", "mix", "0", "1", dim=0, labels=("input",)), _0=(2, 4)))
    np.testing.assert_allclose(session.run([np.zeros((2, 4), F32)])[0], np.full((2, 4), 0.5))
    with pytest.raises(
        InputError, match=r"does not take other batch sizes .*mix \(F.softmax\) normalises along the batch axis"
    ):
        session.run([np.zeros((4, 4), F32)])


def test_inputs_must_agree_on_their_batch() -> None:
    net = built(
        op("pnnx.Input", "pnnx_input_0", "", "a"),
        op("pnnx.Input", "pnnx_input_1", "", "b"),
        op("pnnx.Expression", "add", "a b", "c", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "c"),
        _a=(1, 3),
        _b=(1, 3),
    )
    ones = np.ones((2, 3), F32)
    np.testing.assert_array_equal(Session(net).run([ones, ones])[0], 2 * ones)
    with pytest.raises(InputError, match=r"differ in their batch: found \[2, 3\], \[3, 3\]"):
        Session(net).run([ones, np.ones((3, 3), F32)])


def test_inputs_without_a_common_batch_take_no_other() -> None:
    net = built(
        op("pnnx.Input", "pnnx_input_0", "", "a"),
        op("pnnx.Input", "pnnx_input_1", "", "b"),
        op("torch.matmul", "mm", "a b", "c"),
        op("pnnx.Output", "out", "c"),
        _a=(2, 3),
        _b=(3, 4),
    )
    with pytest.raises(
        InputError, match="does not take other batch sizes .the inputs have no common fixed batch.: found"
    ):
        Session(net).run([np.ones((4, 3), F32), np.ones((3, 4), F32)])


def recurrent(hidden: int, layers: int = 1) -> dict[str, np.ndarray]:
    weights = np.random.default_rng(1)
    return {
        f"{name}_l{k}": weights.standard_normal((3 * hidden, width)).astype(F32)
        for k in range(layers)
        for name, width in (("weight_ih", hidden), ("weight_hh", hidden))
    }


def with_state(layers: int) -> RuntimeGraph:
    """A GRU over (N, T, 4) whose state (layers, N, 4) is an input."""
    return built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "h"),
        op(
            "nn.GRU",
            "gru",
            "0 h",
            "1 2",
            input_size=4,
            hidden_size=4,
            num_layers=layers,
            bias=False,
            batch_first=True,
            bidirectional=False,
            **recurrent(4, layers),
        ),
        op("pnnx.Output", "out", "1"),
        op("pnnx.Output", "state", "2"),
        _0=(1, 5, 4),
        _h=(layers, 1, 4),
    )


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("type", ["add", "cat"])
def test_constants_of_the_exported_batch_serve_any_batch(type: str, backend: str) -> None:
    token = np.broadcast_to(RANDOM.standard_normal((1, 6)).astype(F32), (2, 6)).copy()
    join = op("torch.cat", "join", "c 0", "1", dim=1) if type == "cat" else op("torch.add", "join", "c 0", "1")
    stored = op("pnnx.Attribute", "stored", "", "c", data=token)
    session = Session(built(INPUT, stored, join, op("pnnx.Output", "out", "1"), _0=(2, 6)), backend=backend, cache=None)  # type: ignore[arg-type]
    for batch in (1, 2, 3, 4, 7):
        x = RANDOM.standard_normal((batch, 6)).astype(F32)
        tokens = token[:1].repeat(batch, 0)
        wanted = np.concatenate([tokens, x], 1) if type == "cat" else tokens + x
        np.testing.assert_allclose(session.run([x])[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_states_of_parts_are_joined_in_their_second_dimension(backend: str) -> None:
    gru = op("nn.GRU", "gru", "m", "1 2", input_size=4, hidden_size=4, num_layers=1, bias=False,
             batch_first=True, bidirectional=False, **recurrent(4, 1))  # fmt: skip
    mixed = op("F.softmax", "mix", "0", "m", dim=0, labels=("input",))
    ends = op("pnnx.Output", "out", "1"), op("pnnx.Output", "state", "2")
    session = Session(built(INPUT, mixed, gru, *ends, _0=(1, 5, 4)), backend=backend, cache=None)  # type: ignore[arg-type]
    x = RANDOM.standard_normal((3, 5, 4)).astype(F32)
    ys, states = zip(*(session.run([item]) for item in cut(x, 0)), strict=True)
    together = session.run([x])
    assert session.batching.mode == "split"
    np.testing.assert_allclose(together[0], np.concatenate(ys), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(together[1], np.concatenate(states, 1), rtol=1e-5, atol=1e-6)


def cut(array: np.ndarray, axis: int) -> list[np.ndarray]:
    return np.split(array, array.shape[axis], axis)


TIME_MAJOR = {
    "as one": chain(op("torch.transpose", "t", "0", "1", dim0=0, dim1=1)),
    "last": chain(op("Tensor.permute", "t", "0", "1", dims=(1, 2, 0))),
    "in parts": chain(
        op("F.softmax", "mix", "0", "m", dim=0, labels=("input",)), op("torch.transpose", "t", "m", "1", dim0=0, dim1=1)
    ),
}


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("name", TIME_MAJOR)
def test_answers_are_joined_along_the_axis_that_carries_the_batch(name: str, backend: str) -> None:
    session = Session(TIME_MAJOR[name], backend=backend, cache=None)  # type: ignore[arg-type]
    x = RANDOM.standard_normal((3, 4, 6)).astype(F32)
    axis = 2 if name == "last" else 1
    apart = np.concatenate([session.run([item[None]])[0] for item in x], axis)
    np.testing.assert_allclose(session.run([x])[0], apart, rtol=1e-6)
    assert session.batching.mode == ("split" if name == "in parts" else "any")


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("layers", [1, 2])
def test_states_hold_the_batch_in_their_second_dimension(layers: int, backend: str) -> None:
    session = Session(with_state(layers), backend=backend, cache=None)  # type: ignore[arg-type]
    x = RANDOM.standard_normal((3, 5, 4)).astype(F32)
    h = RANDOM.standard_normal((layers, 3, 4)).astype(F32)
    pairs = zip(cut(x, 0), cut(h, 1), strict=True)
    ys, states = zip(*(session.run(list(pair)) for pair in pairs), strict=True)
    together = session.run([x, h])
    np.testing.assert_allclose(together[0], np.concatenate(ys), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(together[1], np.concatenate(states, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_state_for_one_item_is_that_of_every_item(layers: int) -> None:
    session = Session(with_state(layers), backend="reference")
    x = RANDOM.standard_normal((3, 5, 4)).astype(F32)
    h = RANDOM.standard_normal((layers, 1, 4)).astype(F32)
    apart = [session.run([item, h])[0] for item in cut(x, 0)]
    np.testing.assert_allclose(session.run([x, h])[0], np.concatenate(apart), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 2, 4), (1, 4, 4), (1, 3, 5), (2, 1, 4)])
def test_states_of_another_batch_are_refused(shape: tuple[int, ...]) -> None:
    session = Session(with_state(1), backend="reference")
    with pytest.raises(InputError):
        session.run([np.ones((3, 5, 4), F32), np.ones(shape, F32)])


def test_what_looks_like_a_state_and_is_none_keeps_its_second_dimension() -> None:
    net = built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "b"),
        op("torch.matmul", "mm", "0 b", "1"),
        op("pnnx.Output", "out", "1"),
        _0=(1, 5, 1),
        _b=(1, 1, 3),
    )
    session = Session(net, backend="reference")
    assert session.run([np.ones((2, 5, 1), F32), np.ones((2, 1, 3), F32)])[0].shape == (2, 5, 3)
    with pytest.raises(InputError):
        session.run([np.ones((1, 5, 1), F32), np.ones((1, 2, 3), F32)])
    with pytest.raises(InputError):
        session.run([np.ones((2, 5, 1), F32), np.ones((1, 2, 3), F32)])


def test_an_output_without_a_dimension_for_the_batch_takes_no_other() -> None:
    session = Session(chain(op("torch.sum", "sum", "0", "1")))
    assert session.batching.mode == "fixed"
    with pytest.raises(InputError, match="does not take other batch sizes"):
        session.run([np.ones((2, 4, 6), F32)])


@pytest.mark.parametrize("steps", [3, 12, 18])
def test_steps_of_time_are_not_taken_for_items(steps: int) -> None:
    session = Session(chain(op("torch.cumsum", "sums", "0", "1", dim=0), _0=(6, 1, 4)), backend="reference")
    x = np.random.default_rng(0).standard_normal((steps, 1, 4)).astype(F32)
    with pytest.raises(InputError, match="does not take other batch sizes"):
        session.run([x])
    np.testing.assert_allclose(session.run([x[:1].repeat(6, 0)])[0], x[:1].repeat(6, 0).cumsum(0), rtol=1e-5)


@pytest.mark.parametrize("values", [(1, 1), (1, 2)], ids=["equal", "different"])
def test_constants_of_the_exported_batch_must_be_equal_for_its_items(values: tuple[int, int]) -> None:
    stored = op("pnnx.Attribute", "stored", "", "c", data=np.array(values, F32).reshape(2, 1).repeat(6, 1))
    net = built(INPUT, stored, op("torch.add", "join", "c 0", "1"), op("pnnx.Output", "out", "1"), _0=(2, 6))
    session = Session(net, backend="reference")
    assert session.batching.mode == ("any" if values == (1, 1) else "fixed")
    if values != (1, 1):
        assert "join (torch.add)" in str(session.batching.reason)
