"""Results of a model, and PyTorch's values as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from exporter.errors import SourceError, describe


def answer(model: Any, tensors: Sequence[Any]) -> Any:
    """Return the results of the model, without gradients; the tensors are not modified.

    Raises:
        SourceError: the model does not take these tensors.
    """
    try:
        with torch.no_grad():
            return model(*[tensor.clone() for tensor in tensors])
    except Exception as exc:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
        raise SourceError(f"the model does not take inputs of shape {shapes}", found=describe(exc)) from exc


def flatten(value: Any) -> Iterator[Any]:
    """Yield the tensors of a nested result in order; numbers become tensors, as the tracer makes them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flatten(item)
    elif isinstance(value, (torch.Tensor, bool, int, float, complex)):
        yield torch.as_tensor(value)
    else:
        raise SourceError(
            "the model returns a value that cannot be exported", found=type(value).__name__, expected="tensors"
        )


def has_dict(value: Any) -> bool:
    """Return whether a dict is anywhere in a result, which the tracer must know."""
    items = value if isinstance(value, (tuple, list)) else ()
    return isinstance(value, dict) or any(has_dict(item) for item in items)


def to_array(tensor: Any) -> NDArray[Any]:
    """Return a copy as a numpy array; bfloat16 is widened to float32, which holds all its values."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = plain.float() if plain.dtype == torch.bfloat16 else plain
    array: NDArray[Any] = np.array(plain.numpy())
    return array
