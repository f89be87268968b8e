"""What was made of an operator before is what its rule would make of it now."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import engine
from engine.compiler.assembly.objects import Made
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.asking import noted
from engine.compiler.lowering.recipes import MOST_IN_VAIN, Recipes
from engine.tensor import TensorSpec
from tests.engine.compiler.lowering.lowered import Lowered
from tests.engine.graph.build import F32, INPUT, built, conv, op

POOL = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": True}
LSTM = {"num_layers": 1, "bias": False, "batch_first": True, "bidirectional": False, "proj_size": 0}


def detector() -> engine.RuntimeGraph:
    """Two scales that are joined: strides, pads, pools, residuals, gates, parts in their places, a size as a value."""
    return built(
        INPUT,
        conv("stem", "0", "1", (3, 16), stride=(2, 2), padding=(1, 1)),
        op("nn.SiLU", "bent", "1", "2"),
        op("nn.MaxPool2d", "small", "2", "3", dilation=(1, 1), return_indices=False, **POOL),
        conv("depth", "3", "4", (16, 16), padding=(1, 1), groups=16),
        op("pnnx.Expression", "sum", "4 3", "5", expr="add(@0,@1)"),
        conv("wide", "5", "6", (16, 24), padding=(1, 1), stride=(2, 2)),
        op("nn.Upsample", "large", "6", "7", scale_factor=(2.0, 2.0), mode="nearest", size=None, align_corners=False),
        op("Tensor.size", "rows", "5", "8", dim=2),
        op("pnnx.Expression", "sizes", "8", "9", expr="[1,-1,@0]"),
        op("Tensor.reshape", "turned", "5 9", "10", labels=("input", "shape")),
        op("Tensor.slice", "trim", "7", "11", dim=3, start=1, end=None, step=2),
        op("F.pad", "around", "5", "12", pad=(1, 0, 0, 1), mode="constant", value=0.0),
        conv("after", "12", "13", (16, 8), (2, 2)),
        op("torch.cat", "join", "5 13", "14", dim=1),
        conv("last", "14", "15", (24, 8), (1, 1)),
        op("nn.AdaptiveAvgPool2d", "mean", "15", "16", output_size=(1, 1)),
        op("torch.flatten", "flat", "16", "17", start_dim=1, end_dim=-1),
        op("pnnx.Output", "out", "11"),
        op("pnnx.Output", "out_1", "14"),
        op("pnnx.Output", "out_2", "17"),
        op("pnnx.Output", "out_3", "10"),
        _0=(1, 3, None, None),
    )


def tagger() -> engine.RuntimeGraph:
    """Words to tags: a table, a recurrent layer, attention, a norm, the best of each row."""
    random = np.random.default_rng(2)

    def some(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) / 4

    labels = ("query", "key", "value")
    return built(
        op("pnnx.Input", "words", "", "0"),
        op("nn.Embedding", "table", "0", "1", num_embeddings=20, embedding_dim=16, weight=some(20, 16)),
        op("nn.LSTM", "lstm", "1", "2", input_size=16, hidden_size=16, **LSTM,
           weight_ih_l0=some(64, 16), weight_hh_l0=some(64, 16)),
        op("nn.LayerNorm", "norm", "2", "3", normalized_shape=(16,), eps=1e-5, elementwise_affine=False),
        op("F.scaled_dot_product_attention", "attention", "3 3 3", "4", labels=labels),
        op("nn.Linear", "head", "4", "5", in_features=16, out_features=9, bias=False, weight=some(9, 16)),
        op("torch.argmax", "best", "5", "6", dim=-1, keepdim=False),
        op("F.softmax", "likely", "5", "7", dim=-1),
        op("pnnx.Output", "out", "6"),
        op("pnnx.Output", "out_1", "7"),
        _0=TensorSpec((None, None), np.dtype(np.int64)),
    )  # fmt: skip


def picture(height: int, width: int) -> list[TensorSpec]:
    return [TensorSpec((1, 3, height, width), F32)]


def words(count: int, length: int) -> list[TensorSpec]:
    return [TensorSpec((count, length), np.dtype(np.int64))]


@pytest.mark.parametrize(
    ("graph", "spec", "least"), [(detector, picture, 20), (tagger, words, 1)], ids=["detector", "tagger"]
)
def test_programs_are_those_of_rules_that_were_all_asked(
    graph: Callable[[], engine.RuntimeGraph], spec: Callable[[int, int], list[TensorSpec]], least: int
) -> None:
    lowered = Lowered(graph())
    sizes = [(int(a), int(b)) for a, b in np.random.default_rng(3).integers(least, least + 9, (24, 2))]
    for size in sizes:
        lowered.blueprint(spec(*size), is_known=False)
    made = partial(replace, constants=np.empty(0), weights=np.empty(0), code=())
    asked = []
    for size in sizes * 3:
        lowered.recipes.asked.clear()
        found = lowered.blueprint(spec(*size), recalls=True)
        asked.append(len(lowered.recipes.asked))
        expected = lowered.blueprint(spec(*size))
        assert made(found) == made(expected) and {*found.code} == {*expected.code}
    assert sum(asked[-24:]) < sum(asked[:24]) / 2


def test_behind_a_stride_sizes_of_which_the_whole_has_met_none_are_met_again() -> None:
    lowered = Lowered(detector())
    sizes = [(41, 41), (42, 41), (41, 42), (42, 42)]
    for size in sizes:
        lowered.blueprint(picture(*size), is_known=False)
    asked = []
    for size in sizes:
        lowered.recipes.asked.clear()
        lowered.blueprint(picture(*size), recalls=True)
        asked.append({*lowered.recipes.asked})
    assert "stem" in asked[3] and not {"depth", "wide"} & asked[3] and {"depth", "wide"} <= asked[0]


def asked_for(lowered: Lowered, size: tuple[int, int]) -> list[str]:
    """The operators whose rules are asked."""
    lowered.recipes.asked.clear()
    lowered.blueprint(picture(*size), recalls=True)
    return [*lowered.recipes.asked]


def test_where_other_things_are_known_than_before_rules_are_asked_again() -> None:
    lowered = Lowered(detector())
    lowered.blueprint(picture(41, 41), is_known=False)
    assert "depth" not in [asked_for(lowered, (41, 41)) for _ in range(3)][-1]
    lowered.settle("of another host")
    assert "depth" in asked_for(lowered, (41, 41))


def test_what_was_not_the_best_is_good_until_there_is_the_code_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = Lowered(detector())
    lowered.blueprint(picture(41, 41), is_known=False)
    lowered.settle(others={"depth": ("better", ())})
    assert not {"stem", "depth"} & {*[asked_for(lowered, (41, 41)) for _ in range(3)][-1]}
    monkeypatch.setattr(Made, "has", lambda self, wanted: wanted == ("better", ()))
    lowered.settle()
    assert {"stem", "depth"} & {*asked_for(lowered, (41, 41))} == {"depth"}
    assert "depth" not in asked_for(lowered, (41, 41))


def test_no_lowering_writes_down_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.compiler.lowering.recipes.MOST_WRITTEN", 2)
    lowered = Lowered(detector())
    lowered.blueprint(picture(41, 41), is_known=False)
    kept = []
    for _ in range(4):
        lowered.blueprint(picture(41, 41), recalls=True)
        kept.append(len(lowered.recipes))
    assert kept == [0, 2, 4, 6]


def test_an_operator_whose_questions_never_have_the_same_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    term = Lowering.term
    monkeypatch.setattr(
        Lowering, "term", noted(lambda self, op: None if term(self, op) is None else deepcopy(term(self, op)))
    )
    lowered = Lowered(detector())
    lowered.blueprint(picture(41, 41), is_known=False)
    written = []
    keep = Recipes._keep
    monkeypatch.setattr(Recipes, "_keep", lambda self, key, *given: written.append(key[0]) or keep(self, key, *given))
    for _ in range(30):
        lowered.blueprint(picture(41, 41), recalls=True)
    assert written.count("stem") == 1 + MOST_IN_VAIN


def test_thousands_of_sizes_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.compiler.lowering.recipes.MOST_KEPT", 8)
    lowered = Lowered(detector())
    for size in [(41, 41), (60, 41)] * 4:
        lowered.blueprint(picture(*size), is_known=False)
        lowered.blueprint(picture(*size), recalls=True)
    assert 0 < len(lowered.recipes) <= 8
