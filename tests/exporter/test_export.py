"""From PyTorch to a pair that gives PyTorch's answers, or an error that says why not."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import engine
import exporter
from exporter import DivergenceError, ExportError, SourceError, TracingError


def export(source: str, shapes: list[str], folder: Path, second: list[str] | None = None, **more: Any) -> Any:
    model = exporter.load_source(source)
    other = exporter.parse_inputs(second or [])
    return exporter.export(model, exporter.parse_inputs(shapes), folder, second=other, **more)


@pytest.fixture
def without_onnx(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.onnx.export is not tried: its first call takes ten seconds."""
    monkeypatch.setattr("exporter.onnx_files.NEEDED", ("no_such_package",))


def test_a_network_is_exported_and_gives_pytorchs_answers(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:make_classifier", ["1,3,6,6"], tmp_path)
    assert exported.tried == ("[1,3,6,6]f32",)
    assert exported.remarks == ()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.pnnx.bin", "model.pnnx.param"]
    assert [str(port.spec) for port in exported.graph.outputs] == ["[1, 4] float32"]


def test_dimensions_that_differ_are_dynamic_and_tried_at_further_sizes(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:make_classifier", ["1,3,6,6"], tmp_path, ["2,3,8,10"])
    assert str(exported.graph.inputs[0].spec) == "[?, 3, ?, ?] float32"
    assert exported.tried[:3] == ("[1,3,6,6]f32", "[2,3,8,10]f32", "[3,3,10,14]f32")
    assert {"[1,3,6,11]f32", "[1,3,6,5]f32", "[1,3,11,6]f32"} <= {*exported.tried}


def test_a_layer_norm_without_a_bias_keeps_its_weight_and_the_module_stays_as_it_is(
    torch: Any, networks: str, tmp_path: Path
) -> None:
    model = exporter.load_source(f"{networks}:BareNorm")
    exported = exporter.export(model, exporter.parse_inputs(["2,3,4"]), tmp_path)
    assert exported.tried == ("[2,3,4]f32",)
    assert model.norm.bias is None
    assert [name for name, _ in model.named_parameters()] == ["norm.weight"]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
def test_layers_with_several_names_are_exported_under_one_and_the_module_stays_as_it_is(
    torch: Any, networks: str, tmp_path: Path
) -> None:
    model = exporter.load_source(f"{networks}:TwiceNamed")
    before = dict(model.named_modules(remove_duplicate=False))
    exported = exporter.export(
        model, exporter.parse_inputs(["1,3,20"]), tmp_path / "pair", reference=tmp_path / "values.npz"
    )
    assert exported.tried == ("[1,3,20]f32",)
    assert dict(model.named_modules(remove_duplicate=False)) == before
    recorded = {name for name in np.load(tmp_path / "values.npz") if name.startswith("operand/")}
    assert len(recorded) >= 4


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
def test_layers_that_cannot_be_copied_keep_their_names(torch: Any, networks: str) -> None:
    model = exporter.load_source(f"{networks}:TwiceNamed")
    model(torch.ones(1, 3, 20))  # with gradients: what weight_norm computes cannot be copied now
    before = dict(model.named_modules(remove_duplicate=False))
    with importlib.import_module("exporter.tracing.modules").single_names(model):
        assert model.net[0] is model.conv1 and model.net[1] is before["net.1"]
        assert model.blocks[0]["again"] is not model.transposed
    assert dict(model.named_modules(remove_duplicate=False)) == before


def test_activations_that_work_in_place_are_exported_and_work_in_place_afterwards(
    torch: Any, networks: str, tmp_path: Path
) -> None:
    model = exporter.load_source(f"{networks}:InPlace")
    exported = exporter.export(model, exporter.parse_inputs(["1,3,5,6"]), tmp_path)
    assert exported.tried == ("[1,3,5,6]f32",)
    assert all(each.inplace for each in model.acts)


def test_a_gelu_that_a_module_writes_out_stays_the_one_by_tanh(torch: Any, networks: str, tmp_path: Path) -> None:
    model = exporter.load_source(f"{networks}:Gelus")
    exported = exporter.export(model, exporter.parse_inputs(["2,300"]), tmp_path, rtol=1e-5)
    kinds = [
        op.params.get("approximate", "none") for op in exported.graph.source.operators if "gelu" in op.type.lower()
    ]
    assert sorted(map(str, kinds)) == ["none", "tanh", "tanh"]
    assert "forward" not in vars(model.written)


def test_integers_booleans_and_tuples_are_exported(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:Sequences", ["2,5i64", "2,5bool"], tmp_path)
    assert [str(port.spec) for port in exported.graph.inputs] == ["[2, 5] int64", "[2, 5] bool"]
    assert [str(port.spec) for port in exported.graph.outputs] == ["[2, 5, 5] float32", "[1, 2, 5] float32"]


def test_a_dict_of_outputs_is_exported(networks: str, tmp_path: Path) -> None:
    assert len(export(f"{networks}:Dictionary", ["2,3"], tmp_path).graph.outputs) == 2


def test_a_root_that_is_a_layer_stays_that_layer(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:attention", ["1,3,4", "1,3,4", "1,3,4"], tmp_path)
    assert [op.type for op in exported.graph.operators].count("nn.MultiheadAttention") == 1


def test_half_precision_becomes_single_and_says_so(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:Half", ["2,3f16"], tmp_path)
    assert str(exported.graph.inputs[0].spec) == "[2, 3] float32"
    assert exported.remarks == ("half precision was turned into single precision",)


def test_a_shape_that_pytorch_refuses_is_a_remark(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:Short", ["1,4,3"], tmp_path, ["1,8,3"])
    assert exported.tried == ("[1,4,3]f32", "[1,8,3]f32", "[1,3,3]f32", "[1,7,3]f32")
    assert exported.remarks[-1] == "not tried at [1,12,3]f32 and [1,16,3]f32 and [1,11,3]f32: ValueError: 8 positions"


@pytest.mark.usefixtures("without_onnx")
def test_a_branch_that_the_trace_froze_is_found_by_other_values(networks: str, tmp_path: Path) -> None:
    message = (
        r"differ from PyTorch's at \[1\]f32.*: out0: largest error: found 2.*; nor do they agree with --opt-level 1"
    )
    with pytest.raises(DivergenceError, match=message):
        export(f"{networks}:Frozen", ["1"], tmp_path)


@pytest.mark.usefixtures("without_onnx")
def test_a_padding_that_the_converter_kept_is_found_at_an_odd_size_and_a_level_named(
    networks: str, tmp_path: Path
) -> None:
    message = r"differ from PyTorch's at \[1,3,\d*[13579],.*; the answers agree with --opt-level 0$"
    with pytest.raises(DivergenceError, match=message):
        export(f"{networks}:SamePadding", ["1,3,32,32"], tmp_path, ["1,3,48,48"])
    exported = export(f"{networks}:SamePadding", ["1,3,32,32"], tmp_path, ["1,3,48,48"], opt_level=0)
    assert "[1,3,31,31]f32" in exported.tried


def test_a_size_that_python_computed_is_found_and_fixed_sizes_are_named(
    networks: str, tmp_path: Path, without_onnx: None
) -> None:
    with pytest.raises(DivergenceError, match="the answers agree with fixed sizes, without --shape2$"):
        export(f"{networks}:RollsByHalf", ["2,6,3"], tmp_path, ["2,10,3"])
    assert export(f"{networks}:RollsByHalf", ["2,6,3"], tmp_path).tried == ("[2,6,3]f32",)


def test_integers_are_tried_over_the_range_that_they_index(networks: str, tmp_path: Path, without_onnx: None) -> None:
    message = "with spread values and integers from 0 to 8 for input 0.*out0: largest error"
    with pytest.raises(DivergenceError, match=message):
        export(f"{networks}:FrozenByAnIndex", ["2,5i64"], tmp_path)


def test_a_way_through_onnx_is_named_where_it_works(networks: str, torch: Any, tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    message = "the answers agree through ONNX: torch.onnx.export with dynamo=(True|False), inputs of "
    with warnings.catch_warnings(action="ignore"), pytest.raises(ExportError, match=message):
        export(f"{networks}:scripted_appends", ["2,5,4"], tmp_path)


def test_where_only_equal_values_may_be_chosen_otherwise_that_is_a_remark(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:Best", ["3,9"], tmp_path)
    assert exported.tried == ("[3,9]f32",)
    (remark,) = exported.remarks
    assert remark.endswith("torch.topk_0 (torch.topk) takes another of equal values than PyTorch")


def test_what_depends_on_the_traced_values_is_a_remark(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:Frozen", ["1"], tmp_path, rtol=9)
    (remark,) = exported.remarks
    assert remark.startswith("networks.py, line ")
    assert remark.endswith("might cause the trace to be incorrect")


@pytest.mark.usefixtures("without_onnx")
def test_a_slice_that_the_converter_lost_is_found_and_the_pair_left_for_a_look(networks: str, tmp_path: Path) -> None:
    with pytest.raises(DivergenceError, match=r"at \[1,5\]f32: out0: shape \[1, 5\], reference \[1, 4\]"):
        export(f"{networks}:LosesSlice", ["1,5"], tmp_path, ["1,7"], reference=tmp_path / "ref.npz")
    assert (tmp_path / "model.pnnx.param").exists()
    assert sorted(np.load(tmp_path / "ref.npz").files) == ["in_0", "out_0"]


def test_where_less_simplification_helps_the_error_says_so_and_it_does(networks: str, tmp_path: Path) -> None:
    with pytest.raises(DivergenceError, match="converter computed itself .pnnx_fold.* agree with --opt-level 1$"):
        export(f"{networks}:Cells", ["2,3,4"], tmp_path)
    assert export(f"{networks}:Cells", ["2,3,4"], tmp_path, opt_level=1).tried == ("[2,3,4]f32",)


@pytest.mark.usefixtures("without_onnx")
def test_where_no_way_helps_the_error_names_those_that_were_tried(networks: str, tmp_path: Path) -> None:
    tried = r"with --opt-level 1, with --opt-level 0, through ONNX \(not tried: no_such_package missing\) or with"
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(DivergenceError, match=f"pnnx_fold.* nor do they agree {tried} dynamic sizes$"),
    ):
        export(f"{networks}:scripted_appends", ["2,5,4"], tmp_path)


def test_answers_that_single_precision_does_not_determine_are_a_remark(networks: str, tmp_path: Path) -> None:
    exported = export(f"{networks}:Cancelling", ["2,512"], tmp_path)
    assert exported.tried == ("[2,512]f32",)
    (remark,) = exported.remarks
    assert "as PyTorch's own do in double precision" in remark


@pytest.mark.usefixtures("without_onnx")
def test_a_model_that_has_no_answer_in_double_precision_is_held_to_that_in_single(
    networks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(model: Any) -> Any:
        raise TypeError("this module cannot be copied")

    monkeypatch.setattr(importlib.import_module("exporter.verification"), "copy", SimpleNamespace(deepcopy=refused))
    with pytest.raises(DivergenceError, match="the answers differ"):
        export(f"{networks}:Cancelling", ["2,512"], tmp_path)


@pytest.mark.usefixtures("without_onnx")
def test_a_pair_whose_operators_do_not_fit_is_the_converters_error(torch: Any, networks: str, tmp_path: Path) -> None:
    message = r"pnnx wrote a pair that cannot be run: .*bias does not fit the weight.*; .*--opt-level"
    path = tmp_path / "traced.pt"
    with warnings.catch_warnings(action="ignore"):
        torch.jit.trace(exporter.load_source(f"{networks}:ClearedBias"), torch.ones(2, 4)).save(str(path))
    with pytest.raises(exporter.ConversionError, match=message):
        export(str(path), ["2,4"], tmp_path)


@pytest.mark.parametrize("is_traced", [True, False])
def test_a_torchscript_file_is_exported(networks: str, torch: Any, tmp_path: Path, is_traced: bool) -> None:
    path = tmp_path / "my-net.pt"
    model = exporter.load_source(f"{networks}:make_classifier")
    with warnings.catch_warnings(action="ignore"):
        (torch.jit.trace(model, torch.zeros(1, 3, 6, 6)) if is_traced else torch.jit.script(model)).save(path)
    assert export(str(path), ["1,3,6,6"], tmp_path / "out").tried == ("[1,3,6,6]f32",)


@pytest.mark.parametrize(("name", "shapes", "message"), [
    ("Classifier", ["1,2,6,6"], r"does not take inputs of shape \[1, 2, 6, 6\]: found RuntimeError: .*channels"),
    ("Classifier", ["1,3,6,6", "1"], "does not take inputs of shape .*: found TypeError: .*positional argument"),
    ("Returns", ["1"], "the model returns a value that cannot be exported: found str, expected tensors"),
])  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(
    name: str, shapes: list[str], message: str, networks: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match=message):
        export(f"{networks}:{name}", shapes, tmp_path)


@pytest.mark.usefixtures("without_onnx")
def test_what_the_tracer_says_last_is_handed_on(
    networks: str, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **keys: Any) -> None:
        raise RuntimeError("a long story\nno such thing")

    monkeypatch.setattr(torch.jit, "trace", refuse)
    with pytest.raises(TracingError, match="PyTorch cannot trace the model: found RuntimeError: no such thing"):
        export(f"{networks}:Classifier", ["1,3,6,6"], tmp_path)


@pytest.mark.usefixtures("without_onnx")
def test_half_a_pair_is_a_failed_conversion(
    networks: str, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(script: Path, folder: Path, *args: Any, **keys: Any) -> None:
        folder.mkdir(exist_ok=True)
        for name in ("model.pnnx.param", "model.pnnx.bin"):
            (folder / name).write_text("7767517\n3 2\n")

    monkeypatch.setattr("exporter.alternatives.convert", write_half)
    with pytest.raises(exporter.ConversionError, match="pnnx wrote an unreadable pair: found model.pnnx.param"):
        export(f"{networks}:Classifier", ["1,3,6,6"], tmp_path)


def test_a_level_that_does_not_exist_is_refused(networks: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="unknown level of simplification: found 3"):
        export(f"{networks}:Classifier", ["1,3,6,6"], tmp_path, opt_level=3)


def test_every_operand_that_has_a_submodule_is_recorded(networks: str, torch: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    exported = export(f"{networks}:make_classifier", ["1,3,6,6"], tmp_path, reference=tmp_path / "ref.npz")
    makers = {name: op.name for op in exported.graph.operators for name in (operand.name for operand in op.outputs)}
    recorded = dict(np.load(tmp_path / "ref.npz"))
    named = [makers[key.removeprefix("operand/")] for key in recorded if key.startswith("operand/")]
    assert sorted(named) == ["block.relu", "convbn2d_0", "convbn2d_1", "head", "pnnx_unique_0"]
    comparison = engine.compare(engine.Session(exported.graph), recorded)
    assert len(comparison.rows) == 6
    assert comparison.first is None


def test_values_are_recorded_before_a_later_layer_changes_them_in_place(
    networks: str, torch: Any, tmp_path: Path
) -> None:
    exported = export(f"{networks}:make_classifier", ["1,3,6,6"], tmp_path)
    model = exporter.load_source(f"{networks}:make_classifier")
    recorded = exporter.record(model, [torch.randn(1, 3, 6, 6)], exported.graph)
    folded = next(op for op in exported.graph.operators if op.name == "convbn2d_0")
    assert recorded[f"operand/{folded.outputs[0].name}"].min() < 0


def test_a_module_kept_as_an_operator_needs_a_layer(networks: str, tmp_path: Path) -> None:
    with pytest.raises(engine.UnsupportedOperatorError, match=r"'networks\.Gate' \(gate"):
        export(f"{networks}:Gated", ["2,3"], tmp_path, module_operators=["networks.Gate"])


@pytest.fixture
def custom_operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the examples, with the plugin there loaded."""
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.syspath_prepend(str(examples))
    with engine.registry.extended():
        importlib.import_module("custom_operator")
        yield examples
    del sys.modules["custom_operator"]


def test_a_module_kept_as_an_operator_is_held_against_pytorch_through_its_layer(
    torch: Any, custom_operator: Path, tmp_path: Path
) -> None:
    source = f"{custom_operator}/custom_operator_model.py:Net"
    exported = export(source, ["2,3", "5"], tmp_path, module_operators=["custom_operator_model.Sub"])
    assert exported.tried == ("[2,3]f32, [5]f32",)
    (remark,) = exported.remarks
    assert "torch.tensor results are registered as constants in the trace" in remark
