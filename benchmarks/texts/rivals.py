"""Other engines that embed texts in one process: mean of the tokens, scaled to length 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

Embed = Callable[[Sequence[str]], np.ndarray]
# The most tokens of a text.
LONGEST: Final = 256


def open_tokenizer(model: Path) -> Any:
    """Return the tokenizer of a folder."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    return tokenizer


def open_rival(name: str, model: Path, threads: int, precision: str) -> Embed:
    """Return a function that embeds texts as one padded batch."""
    if name == "fastembed":
        return _fastembed(model, threads)
    run = _onnxruntime(model, threads) if name == "onnxruntime" else _openvino(model, threads, precision)
    tokenizer = open_tokenizer(model)

    def embed(texts: Sequence[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(list(texts))
        ids = np.zeros((len(texts), max(len(each.ids) for each in encodings)), np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(encodings):
            ids[row, : len(each.ids)], mask[row, : len(each.ids)] = each.ids, 1
        hidden = run({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        pooled = (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))

    return embed


def _onnxruntime(model: Path, threads: int) -> Callable[[dict[str, Any]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model / "model.onnx"), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)[0]


def _openvino(model: Path, threads: int, precision: str) -> Callable[[dict[str, Any]], Any]:
    import openvino

    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    hints["INFERENCE_PRECISION_HINT"] = {"float32": "f32"}.get(precision, precision)
    request = openvino.Core().compile_model(str(model / "model.onnx"), "CPU", hints).create_infer_request()
    return lambda inputs: next(iter(request.infer(inputs).values()))


def _fastembed(model: Path, threads: int) -> Embed:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    name = "local/model"
    if name not in [each["model"] for each in TextEmbedding.list_supported_models()]:
        source = ModelSource(hf=name)
        kept: dict[str, Any] = {"pooling": PoolingType.MEAN, "normalization": True, "model_file": "model.onnx"}
        TextEmbedding.add_custom_model(model=name, sources=source, dim=384, **kept)
    embedding = TextEmbedding(name, specific_model_path=str(model), threads=threads)
    return lambda texts: np.array(list(embedding.embed(list(texts), batch_size=len(texts))))


def answer(vector: Any) -> dict[str, Any]:
    """Return an embedding in OpenAI's form."""
    return {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}]}
