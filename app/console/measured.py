"""What a model is profiled on: zeros of its own sizes, of sizes that are asked for, or one of its samples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.console.samples import list_samples, read_sample
from app.errors import InvalidRequestError
from app.memory.allowance import would_fit
from app.models.examples import fits
from app.models.folder.repository import ModelFiles
from app.models.model import Model
from app.models.request import InferRequest
from app.wording import cut, quoted

_SHAPE: Final = re.compile(r"\d{1,10}(,\d{1,10}){0,31}|scalar")
Read = Callable[[bytes, str], InferRequest]
Measured = tuple[dict[str, NDArray[Any]], str]


def inputs_to_measure(
    model: Model, files: ModelFiles, read: Read, shapes: Sequence[str] = (), sample: str | None = None
) -> Measured:
    """Inputs, and what they are.

    Args:
        files: of the model, with the samples beside it.
        read: what a sample and its type would be as a request.
        shapes: as ``1,3,224,224``, one for each input.
        sample: a name; without one, and without shapes, the first sample is taken where sizes are open.

    Raises:
        InvalidRequestError: the shapes are not as many as the inputs or do not fit; sizes are open, and nothing is
            said.
        NotFoundError: it has no such sample.
        ServiceError, EngineError: as a request would be refused.
    """
    if shapes:
        return _zeros(model, shapes), "zeros"
    if sample is None:
        zeros = model.example_inputs()
        if zeros is not None:
            return zeros, "zeros"
        named = list_samples(files)
        if not named:
            raise InvalidRequestError(
                "profile: the model leaves its input's size open and has no sample, expected such as shape=1,3,224,224"
            )
        sample = str(named[0]["name"])
    return model.prepare(read(*read_sample(files, sample))).tensors, f"sample {sample}"


def _zeros(model: Model, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    ports = model.signature.inputs
    if len(texts) != len(ports):
        names = quoted(port.name for port in ports)
        raise InvalidRequestError(f"shape: found {len(texts)}, expected one for each input: {names}")
    specs = []
    for port, text in zip(ports, texts, strict=True):
        if not _SHAPE.fullmatch(text):
            raise InvalidRequestError(f"shape: found '{cut(text)}', expected sizes by comma, such as 1,3,224,224")
        shape = () if text == "scalar" else tuple(map(int, text.split(",")))
        if port.spec is None or not fits(port, shape):
            raise InvalidRequestError(f"shape: found {list(shape)}, which does not fit '{port.name}' ({port.spec})")
        specs.append((port.name, shape, port.spec.dtype))
    would_fit(sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in specs))
    return {name: np.zeros(shape, dtype) for name, shape, dtype in specs}
