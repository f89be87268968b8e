"""What operators announce for operands they were asked about before is what they would announce."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, TensorSpec, registry
from engine.graph.building.foreseen import Foreseen
from engine.layers.convolution.conv import Conv
from engine.limits import asking_for_room
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, conv, op


def graph() -> RuntimeGraph:
    """Sizes that become values, and values that become sizes."""
    return built(
        INPUT,
        conv("first", "0", "1", (3, 4), stride=(2, 2), padding=(1, 1)),
        op("Tensor.size", "width", "1", "2", dim=3),
        op("pnnx.Expression", "sizes", "2", "3", expr="[1,-1,@0]"),
        op("nn.ReLU", "relu", "1", "4"),
        op("Tensor.reshape", "turned", "4 3", "5", labels=("input", "shape")),
        op("torch.split", "halves", "4", "6 7", split_size_or_sections=2, dim=1),
        op("torch.cat", "joined", "6 7", "8", dim=3),
        op("pnnx.Output", "out", "5"),
        op("pnnx.Output", "out_1", "8"),
        _0=(1, 3, None, None),
    )


def known(values: dict[str, object]) -> dict[str, object]:
    """With what specs leave out of a comparison."""
    return {
        name: (each, None if each.value is None else each.value.tolist()) if isinstance(each, TensorSpec) else each
        for name, each in values.items()
    }


def specs(height: int, width: int) -> list[TensorSpec]:
    return [TensorSpec((1, 3, height, width), F32)]


def test_it_is_what_would_be_announced_without() -> None:
    taken = graph()
    foreseen = Foreseen(taken.operators)
    sizes = [(int(a), int(b)) for a, b in np.random.default_rng(1).integers(3, 9, (60, 2))]
    for size in sizes:
        assert known(taken.infer(specs(*size), foreseen)) == known(taken.infer(specs(*size)))


def test_of_sizes_that_come_a_third_time_no_layer_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, asked = graph(), []
    foreseen = Foreseen(taken.operators)
    infer = Conv.infer
    monkeypatch.setattr(Conv, "infer", lambda self, *given: asked.append(1) or infer(self, *given))
    for _ in range(5):
        taken.infer(specs(8, 8), foreseen)
    assert len(asked) == 2


def test_there_must_be_room_for_it_each_time() -> None:
    taken = graph()
    foreseen = Foreseen(taken.operators)
    for _ in range(3):
        taken.infer(specs(64, 64), foreseen)

    def room(size: int) -> None:
        raise engine.ShapeError("no room", found=size)

    with asking_for_room(room), pytest.raises(engine.ShapeError, match="no room"):
        taken.infer(specs(64, 64), foreseen)


def stages(*last: Operator) -> RuntimeGraph:
    """Pictures that become smaller, twice."""
    return built(
        INPUT,
        conv("stem", "0", "1", (3, 4), stride=(2, 2), padding=(1, 1)),
        op("nn.ReLU", "relu", "1", "2"),
        conv("next", "2", "3", (4, 8), stride=(2, 2), padding=(1, 1)),
        op("nn.SiLU", "silu", "3", "4"),
        conv("after", "4", "5", (8, 8), padding=(1, 1)),
        *last,
        op("pnnx.Output", "out", "5"),
        _0=(1, 3, None, None),
    )


def test_what_all_behind_a_waist_announce_is_what_they_would_without() -> None:
    taken = stages()
    foreseen = Foreseen(taken.operators)
    for height, width in np.random.default_rng(1).integers(9, 20, (80, 2)).tolist():
        found, expected = taken.infer(specs(height, width), foreseen), taken.infer(specs(height, width))
        assert known(found) == known(expected) and [*found] == [*expected]


def test_behind_a_waist_no_layer_is_asked_for_a_size_that_only_the_whole_has_not_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, asked = stages(), []
    foreseen = Foreseen(taken.operators)
    infer = Conv.infer
    monkeypatch.setattr(Conv, "infer", lambda self, *given: asked.append(self.out_channels) or infer(self, *given))
    for size in [(17, 17), (18, 17), (17, 18)]:
        taken.infer(specs(*size), foreseen)
    asked.clear()
    taken.infer(specs(18, 18), foreseen)
    assert asked == [4]


def test_behind_a_waist_there_must_be_room_each_time() -> None:
    taken = stages()
    foreseen = Foreseen(taken.operators)
    for size in [(17, 17), (18, 17), (17, 18)]:
        taken.infer(specs(*size), foreseen)
    refused = []

    def room(size: int) -> None:
        if size == 4 * 8 * 5 * 5:
            refused.append(size)
            raise engine.ShapeError("no room", found=size)

    with asking_for_room(room), pytest.raises(engine.ShapeError, match="no room"):
        taken.infer(specs(18, 18), foreseen)
    assert refused


def test_behind_a_waist_where_values_decide_layers_are_asked() -> None:
    taken = stages(op("Tensor.size", "width", "5", "6", dim=3), op("pnnx.Output", "out_1", "6"))
    foreseen = Foreseen(taken.operators)
    for _ in range(4):
        for size in [(17, 17), (18, 17), (30, 9)]:
            assert known(taken.infer(specs(*size), foreseen)) == known(taken.infer(specs(*size)))


def test_behind_a_waist_a_users_own_layer_is_asked_each_time() -> None:
    asked = []

    class Mine(engine.Layer):
        def infer(self, input: TensorSpec) -> TensorSpec:
            asked.append(input.shape)
            return input

        def forward(self, input: np.ndarray) -> np.ndarray:
            return input

    with registry.extended():
        engine.register("my.Op")(Mine)
        taken = stages(op("my.Op", "mine", "5", "6"), op("pnnx.Output", "out_1", "6"))
        foreseen = Foreseen(taken.operators)
        asked.clear()
        for _ in range(5):
            taken.infer(specs(17, 17), foreseen)
    assert len(asked) == 5
