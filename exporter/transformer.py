"""Folder of transformers to an ONNX file with dynamic sizes, compared with PyTorch at other sizes."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

import engine
from exporter.errors import DivergenceError, SourceError, TracingError, describe, last_line

# Largest difference of a value, as a share of the largest magnitude.
_TOLERANCE: Final = 1e-4
_HEADS: Final = {
    "ForSequenceClassification": ("AutoModelForSequenceClassification", ("logits",)),
    "ForTokenClassification": ("AutoModelForTokenClassification", ("logits",)),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", ("start_logits", "end_logits")),
    "ForMaskedLM": ("AutoModelForMaskedLM", ("logits",)),
    "ForImageClassification": ("AutoModelForImageClassification", ("logits",)),
}
_TEXT_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_DECODERS: Final = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def export_transformer(folder: Path, architecture: str, path: Path, *, has_tokens: bool) -> None:
    """Write a model as an ONNX file; numbers of texts and tokens are dynamic, and the number of pictures.

    Args:
        folder: folder with config.json and weights; no code in it runs.
        architecture: name in config.json, whose ending tells the outputs.
        path: file to write.
        has_tokens: whether the folder has a tokenizer, so that the model takes texts.

    Raises:
        SourceError: transformers cannot load the model, or it generates text.
        TracingError: PyTorch cannot export it.
        DivergenceError: the results of the file differ from PyTorch's.
    """
    if architecture.endswith(_DECODERS):
        raise SourceError("models that generate text are not supported", where=folder.name, found=architecture)
    model, outputs = _load(folder, architecture)
    inputs = _examples(model, has_tokens, folder.name)
    names = [*inputs]
    traced = _ByName(model, names, outputs).eval()
    axes = {0: "items", 1: "tokens"} if has_tokens else {0: "items"}
    # A pooled output has no axis of tokens; the exporter finds out itself.
    dynamic = {**dict.fromkeys(names, axes), **{name: {0: "items"} for name in outputs}}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # tracing is deprecated, but exports more models than its successor
            torch.onnx.export(
                traced, tuple(inputs.values()), str(path), dynamo=False, opset_version=17, input_names=names,
                output_names=list(outputs), dynamic_axes=dynamic,
            )  # fmt: skip
    except Exception as exc:
        raise TracingError(
            "PyTorch cannot export the model", where=folder.name, found=last_line(describe(exc))
        ) from exc
    _compare(model, inputs, outputs, path, has_tokens)


class _ByName(torch.nn.Module):  # type: ignore[misc]  # torch is not seen by the type checker
    """Model of transformers that takes its inputs in order, and returns a tuple of some outputs."""

    def __init__(self, model: Any, inputs: list[str], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self._inputs, self._outputs = model, inputs, outputs

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        found = self.model(**dict(zip(self._inputs, tensors, strict=True)))
        return tuple(getattr(found, name) for name in self._outputs)


def _load(folder: Path, architecture: str) -> tuple[Any, tuple[str, ...]]:
    """Return the model, and the names of its outputs."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # only files of the folder are used
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    head, outputs = next(
        (found for ending, found in _HEADS.items() if architecture.endswith(ending)),
        ("AutoModel", ("last_hidden_state",)),
    )
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "dtype": torch.float32}
    try:
        try:
            model = getattr(transformers, head).from_pretrained(folder, attn_implementation="eager", **options)
        except ValueError:  # of models that know one implementation of attention
            model = getattr(transformers, head).from_pretrained(folder, **options)
    except Exception as exc:
        raise SourceError(
            "transformers cannot load the model", where=folder.name, found=" ".join(describe(exc).split())[:300]
        ) from exc
    return model.eval(), outputs


def _examples(model: Any, has_tokens: bool, where: str) -> dict[str, torch.Tensor]:
    """Return inputs of two texts of seven tokens, or of a picture."""
    taken = inspect.signature(model.forward).parameters
    if has_tokens and "input_ids" in taken:
        names = [name for name in _TEXT_INPUTS if name in taken]
        if getattr(model.config, "type_vocab_size", 0) < 2 and "token_type_ids" in names:
            names.remove("token_type_ids")
        return {name: torch.full((2, 7), int(name != "token_type_ids")) for name in names}
    size = getattr(model.config, "image_size", None)
    if "pixel_values" in taken and isinstance(size, int | list | tuple):
        height, width = (size, size) if isinstance(size, int) else size
        return {"pixel_values": torch.zeros((1, getattr(model.config, "num_channels", 3), height, width))}
    raise SourceError(
        "the inputs are unknown", where=where, found=", ".join(taken), expected="input_ids or pixel_values"
    )


def _compare(
    model: Any, inputs: Mapping[str, torch.Tensor], outputs: tuple[str, ...], path: Path, has_tokens: bool
) -> None:
    """Raise DivergenceError unless the file gives PyTorch's results, at other sizes than it was traced with."""
    random = torch.Generator().manual_seed(0)
    given: dict[str, torch.Tensor] = {}
    for name, value in inputs.items():
        if not has_tokens:
            given[name] = torch.rand((2, *value.shape[1:]), generator=random)
        elif name == "input_ids":
            given[name] = torch.randint(0, model.config.vocab_size, (3, 11), generator=random)
        else:
            given[name] = torch.full((3, 11), int(value.flatten()[0]))
    with torch.no_grad():
        result = model(**given)
    session = engine.Session(engine.load(path), backend="reference")
    found = session.run({name: value.numpy() for name, value in given.items()}).asdict()
    for name in outputs:
        expected = getattr(result, name).numpy()
        difference = float(np.abs(found[name] - expected).max(initial=0)) / (
            float(np.abs(expected).max(initial=0)) or 1
        )
        if found[name].shape != expected.shape or not difference <= _TOLERANCE:
            raise DivergenceError(
                "the exported file differs from PyTorch", where=name, found=f"{difference:.1e}",
                expected=f"at most {_TOLERANCE:g}",
            )  # fmt: skip
