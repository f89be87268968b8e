"""Inputs of an experiment: random values, or a sample, repeated to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import InvalidRequestError
from app.models.model import Model


def random_inputs(specs: Sequence[engine.TensorSpec], batch: int | None = None) -> list[NDArray[Any]]:
    """Return random inputs of the specs or of another batch size, the same on each call."""
    random = np.random.default_rng(0)
    found = []
    for each in specs:
        shape = tuple(dim or 1 for dim in each.shape)
        shape = shape if batch is None or not shape else (batch, *shape[1:])
        # 0 and 1 are valid as indices, masks and counts
        values = random.standard_normal(shape) if each.dtype.kind in "fc" else random.integers(0, 2, shape)
        found.append(np.asarray(values).astype(each.dtype))
    return found


def example(model: Model) -> list[NDArray[Any]]:
    """Return one item of random values.

    Raises:
        InvalidRequestError: the model has dynamic sizes.
    """
    zeros = model.example_inputs()
    if zeros is None:
        raise InvalidRequestError(f"{model.missing_example}, so there is nothing to run it on; choose a sample")
    return random_inputs([engine.TensorSpec(each.shape, each.dtype) for each in zeros.values()])


def repeated(inputs: Sequence[NDArray[Any]], batch: int) -> list[NDArray[Any]]:
    """Return the item repeated to a batch."""
    return [np.concatenate([each[:1]] * batch) if each.ndim else each for each in inputs]
