"""What operators announce for operands they were asked about before is what they would announce."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, TensorSpec
from engine.graph.building.foreseen import Foreseen
from engine.layers.convolution.conv import Conv
from engine.limits import asking_for_room
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
