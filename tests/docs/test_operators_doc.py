"""Tests that docs/operators.md matches the registry and has all types that pnnx is known to write."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import engine
from docs.generate_operators import PAGE, compiled_as, render
from engine.compiler.codegen.host import describe
from engine.compiler.lowering import Lowering, lower
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.creation.creation import Full
from engine.layers.creation.matrices import MeshGrid
from engine.layers.elementwise.cast import To, TypeAs
from engine.layers.onnx.products.conv import ConvInteger
from engine.layers.onnx.products.matmul import MatMulInteger
from engine.layers.shape.expand import BroadcastTensors
from engine.layers.shape.permute import Adjoint
from engine.layers.shape.split import AxisSplit
from engine.layers.signal.fourier import SeveralAxes
from engine.layers.signal.short_time_fourier import Spectrogram
from engine.passes.decomposition import decomposition, origin
from tests.engine.layers.samples import Sample, all_samples

CATALOGUE = Path(__file__).parents[1] / "data" / "catalogue.txt"


def types_with_layers() -> list[str]:
    """Return the types that need a layer: lines of the catalogue without a mark."""
    lines = [line.split() for line in CATALOGUE.read_text().splitlines() if not line.startswith("#")]
    return [words[0] for words in lines if len(words) == 1]


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python docs/generate_operators.py"


def test_every_type_of_the_catalogue_has_a_layer() -> None:
    missing = [type for type in types_with_layers() if type not in engine.registry]
    assert not missing, f"{len(missing)} types without a layer: {', '.join(missing)}"


def test_every_type_of_the_catalogue_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [type for type in types_with_layers() if f"`{type}`" not in page] == []


def test_every_layer_has_a_docstring() -> None:
    layers = {engine.registry[type].layer for type in engine.registry}
    # A dataclass without a docstring gets its signature as docstring.
    silent = [
        layer.__name__ for layer in layers if (layer.__doc__ or f"{layer.__name__}(").startswith(f"{layer.__name__}(")
    ]
    assert silent == []


def operators(sample: Sample) -> Iterator[tuple[tuple[type, object], str, bool]]:
    """Yield layer and spatial rank, the page's entry, and whether it is lowered, for each operator of a sample."""
    with tempfile.TemporaryDirectory() as folder:
        graph = engine.load(*sample.extract(Path(folder)))
        written = graph
        while (source := decomposition(written)) is not written.source:
            written = written.rebuilt(source)
        values = written.infer([engine.TensorSpec(each.shape, each.dtype) for each in sample.sets[0].inputs])
        ports = ([port.operand for port in ports] for ports in (graph.inputs, graph.outputs))
        lowering = Lowering(written.operators, values, *ports, host=describe("avx2"))
        lower(lowering)
        made = {*lowering.views, *lowering.constants}
        reasons = set(map(origin, lowering.reasons))
        for op in graph.operators:
            if op.layer is not None:
                signature = op.layer.signature
                is_made = op.name in lowering.absorbed or any(each.name in made for each in op.outputs)
                kind = signature.layer, signature.presets.get("spatial_rank")
                yield kind, compiled_as(signature), is_made and op.name not in reasons


def test_the_page_marks_exactly_the_layers_that_a_sample_lowers_as_compiled() -> None:
    found = [each for sample in all_samples() for each in operators(sample)]
    lowered = {kind for kind, _, is_lowered in found if is_lowered}
    dilated = {(ConvTranspose, 1), (ConvTranspose, 3)}
    recorded_in_other_dtypes = {(layer, None) for layer in (To, TypeAs)}
    # Lists are lowered item by item; repetitions, windows and filters are recorded as run-time tensors.
    deformed, inverse = "pnnx.custom_op.torchvision.deform_conv2d", "torchaudio.functional.inverse_spectrogram"
    types = ("aten::repeat_interleave", deformed, inverse)
    lowered_in_other_forms = {
        *((layer, None) for layer in (AxisSplit, BroadcastTensors, MeshGrid)),
        *((engine.registry[type].layer, None) for type in types),
    }
    replaced_by_a_pass = {(ConvInteger, None), (MatMulInteger, None)}
    constant_in_samples = {(Full, None), (engine.registry["torch.arange"].layer, None)}
    made_of_what_numpy_computes = {(layer, None) for layer in (Adjoint, SeveralAxes, Spectrogram)}
    others = recorded_in_other_dtypes | dilated | lowered_in_other_forms | replaced_by_a_pass | constant_in_samples
    others |= made_of_what_numpy_computes
    assert {kind for kind, compiled, _ in found if compiled != "–"} == lowered | others
