"""Parts of a trace that the converter would lose: writes into shared memory, functions that are not operators."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
import exporter

WRITTEN = Path(__file__).with_name("written.py")
NAMES = re.findall(r"^@_case\ndef (\w+)", WRITTEN.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_to_is_exported_and_gives_pytorchs_answers(name: str, torch: Any, tmp_path: Path) -> None:
    model = importlib.import_module("tests.exporter.written").Written(name)
    exported = exporter.export(model, exporter.parse_inputs(["4,8"]), tmp_path)
    assert exported.tried == ("[4,8]f32",)


@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("masks", ["padding", "causal", "padding causal"])
def test_masks_of_attention_are_exported_at_open_and_fixed_sizes(masks: str, torch: Any, tmp_path: Path) -> None:
    model = importlib.import_module("tests.exporter.written").Masked(masks).eval()
    first, second = exporter.parse_inputs(["2,5i64"]), exporter.parse_inputs(["3,8i64"])
    exported = exporter.export(model, first, tmp_path / "open", second=second)
    assert {"[4,11]i64", "[2,11]i64", "[2,3]i64"} <= {*exported.tried}
    assert "nn.MultiheadAttention" in {operator.type for operator in exported.graph.operators}
    ids = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 0], [6, 7, 1, 2], [3, 0, 0, 0]])  # as many rows as columns
    (found,) = engine.Session(exported.graph).run([ids.numpy()])
    np.testing.assert_allclose(found, model(ids).detach().numpy(), atol=1e-5)
    assert exporter.export(model, exporter.parse_inputs(["4,4i64"]), tmp_path / "fixed").tried == ("[4,4]i64",)


def test_layers_in_place_stay_layers(torch: Any, tmp_path: Path) -> None:
    model = importlib.import_module("tests.exporter.written").Written("a_layer_in_place_of_what_is_used_again")
    graph = exporter.export(model, exporter.parse_inputs(["4,8"]), tmp_path).graph
    assert "nn.ReLU" in {operator.type for operator in graph.operators}


def test_calls_that_failed_and_were_caught_leave_nothing(torch: Any, tmp_path: Path) -> None:
    model = importlib.import_module("tests.exporter.written").Retried()
    assert exporter.export(model, exporter.parse_inputs(["4,8"]), tmp_path).tried == ("[4,8]f32",)


def test_quotients_are_rounded_as_pytorch_rounds_them(torch: Any, tmp_path: Path) -> None:
    model = importlib.import_module("tests.exporter.written").Rounded()
    exported = exporter.export(model, exporter.parse_inputs(["4,8", "4,8"]), tmp_path)
    assert exported.tried == ("[4,8]f32, [4,8]f32",)


def test_a_write_that_cannot_be_followed_is_left_to_the_converter(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*operands: Any) -> Any:
        raise NotImplementedError("no such view is known")

    monkeypatch.setattr(importlib.import_module("exporter.tracing.writes"), "placed", lost)
    model = importlib.import_module("tests.exporter.written").Written("all_through_another_shape")
    with pytest.raises(exporter.DivergenceError, match="the answers differ"):
        exporter.export(model, exporter.parse_inputs(["4,8"]), tmp_path)


def test_tracing_leaves_pytorch_as_it_was(torch: Any, networks: str, tmp_path: Path) -> None:
    def now() -> tuple[Any, ...]:
        module = torch.nn.modules.module
        hooks = len(module._global_forward_hooks), len(module._global_forward_pre_hooks)
        function = (
            torch.autograd.Function.apply.__func__,
            hasattr(torch.autograd.function._SingleLevelFunction, "apply"),
        )
        return torch.jit.script, torch.jit._trace.script, torch._jit_internal.module_has_exports, function, hooks

    before = now()
    exporter.export(exporter.load_source(f"{networks}:make_classifier"), exporter.parse_inputs(["1,3,6,6"]), tmp_path)
    assert now() == before


@st.composite
def _views(draw: st.DrawFn) -> tuple[list[int], list[tuple[str, Any]]]:
    """A shape, and up to three views one of the other, as functions of a tensor."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    steps = st.sampled_from(["slice", "select", "permute", "flatten", "unsqueeze", "diagonal", "split"])
    return sizes, [(draw(steps), draw(st.integers(0, 5))) for _ in range(draw(st.integers(1, 3)))]


def _viewed(tensor: Any, steps: list[tuple[str, Any]]) -> Any:
    for kind, number in steps:
        dim = number % max(tensor.dim(), 1)
        if kind == "unsqueeze":
            tensor = tensor.unsqueeze(dim)
        elif not tensor.dim():
            continue
        elif kind == "slice":
            tensor = tensor[(slice(None),) * dim + (slice(number % tensor.shape[dim], None, 1 + number % 2),)]
        elif kind == "select":
            tensor = tensor.select(dim, number % tensor.shape[dim])
        elif kind == "permute":
            tensor = tensor.movedim(0, dim)
        elif kind == "split":
            tensor = tensor.split(2, dim)[-1]
        elif kind == "diagonal" and tensor.dim() > 1:
            tensor = tensor.diagonal(dim1=0, dim2=1)
        elif kind == "flatten" and tensor.is_contiguous():
            tensor = tensor.view(-1)
    return tensor


@given(_views())
def test_values_are_put_where_a_view_of_any_kind_lies(case: tuple[list[int], list[tuple[str, Any]]]) -> None:
    torch = pytest.importorskip("torch")
    placed = importlib.import_module("exporter.tracing.view_writes").placed
    sizes, steps = case
    whole = torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes)
    view = _viewed(whole, steps)
    values = -torch.arange(1.0, 1 + view.numel()).reshape(view.shape)
    found, expected = placed(whole, view, values), whole.clone()
    _viewed(expected, steps).copy_(values)
    assert torch.equal(found, expected)
