"""Sessions that compile ahead of their first run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import TensorSpec
from engine.compiler.codegen import object_code
from engine.compiler.runtime import instance
from tests.engine.compiler.cache.keeping import SHAPE, X, convolution, sorting
from tests.engine.graph.build import F32, INPUT, built, op


def session(graph: engine.RuntimeGraph | None = None, **options: object) -> engine.Session:
    return engine.Session(graph or convolution(), threads=1, cache=None, **options)  # type: ignore[arg-type]


def test_what_was_made_is_described() -> None:
    made = session(sorting()).prepare()
    assert made is not None
    assert made["fallbacks"] == 1
    assert made["kernels"] > 0
    assert made["constant_bytes"] > 0
    assert (made["is_cached"], made["entry_bytes"]) == (False, 0)


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_a_run_after_it_compiles_nothing(batch: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()
    made.prepare(batch)
    monkeypatch.setattr(object_code, "assemble", None)
    made.run([np.concatenate([X] * (batch or 1))])


def test_shapes_that_the_file_leaves_open_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = built(INPUT, op("F.relu", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(None, None))
    made = session(graph)
    assert made.prepare() is None
    assert made.prepare(4) is None
    assert made.prepare(specs=[TensorSpec((2, 3), F32)]) is not None
    monkeypatch.setattr(object_code, "assemble", None)
    assert made.run([-np.ones((2, 3), np.float32)])[0].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_batch_that_is_split_is_prepared_as_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = built(
        INPUT,
        op("F.softmax", "mix", "0", "1", dim=0, labels=("input",)),
        op("F.relu", "relu", "1", "2"),
        op("pnnx.Output", "out", "2"),
        _0=(1, 3),
    )
    made = session(graph)
    assert made.batching.mode == "split"
    made.prepare(6)
    monkeypatch.setattr(object_code, "assemble", None)
    assert made.run([np.ones((6, 3), np.float32)])[0][:, 0].tolist() == [1] * 6


def test_a_batch_the_graph_does_not_take_is_refused() -> None:
    graph = built(
        INPUT, op("torch.sum", "sum", "0", "1", dim=(0, 1), keepdim=False), op("pnnx.Output", "out", "1"),
        _0=(2, 3), _1=(),
    )  # fmt: skip
    with pytest.raises(engine.InputError, match="does not take other batch sizes"):
        session(graph).prepare(4)


def test_the_reference_has_nothing_to_prepare() -> None:
    assert session(backend="reference").prepare() is None


def test_what_cannot_be_compiled_says_why_or_is_refused() -> None:
    graph = built(INPUT, op("aten::exponential", "drawn", "0", "1"), op("pnnx.Output", "out", "1"), _0=(2,))
    made = session(graph).prepare()
    assert made is not None and list(made) == ["failure"]
    with pytest.raises(engine.CompileError, match="no operator of the graph has a kernel"):
        session(graph, backend="compiled").prepare()
    failed = session(graph)
    assert failed.compile_failure is None
    failed.prepare()
    assert failed.compile_failure == made["failure"]


def test_progress_is_told_of_passes_every_operator_and_every_kernel() -> None:
    told: list[tuple[str, int, int]] = []
    session().prepare(progress=lambda *each: told.append(each))
    stages = [doing for doing, done, _ in told if done == 0]
    assert list(dict.fromkeys(stages)) == ["passes", "lowering", "assembling"]
    for stage in ("lowering", "assembling"):
        count = max(of for doing, _, of in told if doing == stage)
        assert [each[1:] for each in told if each[0] == stage] == [(number, count) for number in range(count)]


def test_a_warm_start_has_no_progress_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.compiler.builder.is_unchanged", lambda: True)
    told: list[str] = []
    for _ in range(2):
        told.clear()
        engine.Session(convolution(), cache=tmp_path).prepare(progress=lambda doing, *_: told.append(doing))
    assert told == []


def test_a_program_is_made_once() -> None:
    made = session()
    first = made.prepare(specs=[TensorSpec(SHAPE, F32)])
    assert made.prepare() == first


def test_what_would_not_be_kept_is_made_without_memory_to_run_in(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(instances_max_bytes=0)
    made.prepare()
    monkeypatch.setattr(instance, "new_arena", None)
    found = made.prepare(3)
    assert found is not None and found["kernels"] > 0
    assert made.compile_failure is None


@pytest.mark.parametrize("doing", ["passes", "lowering", "assembling"])
def test_it_can_be_cancelled_at_every_stage_and_done_again(doing: str) -> None:
    stage: list[str] = []
    made = session(sorting())
    with pytest.raises(engine.RunCancelledError, match=f"^{doing}: compiling was cancelled"):
        made.prepare(progress=lambda *told: stage.append(told[0]), cancelled=lambda: doing in stage)
    assert made.prepare() is not None


def test_specs_are_checked_like_the_inputs_of_a_run() -> None:
    made = session()
    assert made.prepare(specs=[TensorSpec(SHAPE, np.float32)]) is not None  # type: ignore[arg-type]
    for wrong in (
        TensorSpec(SHAPE, np.dtype(np.float64)),
        TensorSpec((*SHAPE, 1), F32),
        TensorSpec((*SHAPE[:-1], 77), F32),
    ):
        for use in (lambda spec: made.prepare(specs=[spec]), lambda spec: made.discard([spec])):
            with pytest.raises(engine.InputError, match="input '.*': wrong"):
                use(wrong)
    with pytest.raises(engine.InputError, match="wrong number of inputs: found 0, expected 1"):
        made.prepare(specs=[])
