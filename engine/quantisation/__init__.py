"""Post-training quantisation: layers of a float32 graph get fewer bits where that is faster and accurate enough.

    result = quantise(graph, samples, keep=0.999)
    result.graph.save("model.pnnx.param", "model.pnnx.bin")

The result holds ``QuantizeLinear`` and ``DequantizeLinear`` around every int8 layer, as ONNX writes it, or layers with
weights in blocks (``engine.BlockLinear``).
"""

from engine.quantisation.accuracy import AccuracyChange, compare_accuracy
from engine.quantisation.selection import LayerReport, QuantisedModel, quantise

__all__ = ["AccuracyChange", "LayerReport", "QuantisedModel", "compare_accuracy", "quantise"]
