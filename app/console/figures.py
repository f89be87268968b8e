"""Statistics of tensors and operator outputs, and pictures of their channels."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.arrays import dtype_name
from app.errors import NotFoundError
from app.images.drawing import encode_png, to_text
from app.memory.reservation import charge, running
from app.messages import cut
from app.models.model import Model
from app.models.request import InferRequest

_BINS: Final = 48
_FIRST: Final = 64
# Larger tensors are sampled evenly.
_MOST: Final = 1 << 22
# Memory for the statistics of any tensor.
COST: Final = 4 * 8 * _MOST
# Maximum number of channel pictures, and of their side.
_CHANNELS: Final = 64
_SIDE: Final = 96


def figures(array: NDArray[Any]) -> dict[str, Any]:
    """Return shape, range, mean, standard deviation, histogram and first values; non-finite values are counted."""
    described: dict[str, Any] = {
        "shape": list(array.shape),
        "dtype": dtype_name(array.dtype),
        "bytes": array.nbytes,
        "first": [_number(value) for value in array.ravel()[:_FIRST].tolist()],
    }
    if array.dtype.kind == "c" or not array.size:
        return described
    step = max(1, array.size // _MOST)
    values = array.reshape(-1)[::step].astype(np.float64)
    known = values[np.isfinite(values)]
    described |= {
        "seen": int(values.size),
        "not_finite": int(values.size - known.size),
        "zeros": int((values == 0).sum()),
    }
    if known.size:
        low, high = float(known.min()), float(known.max())
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = float(known.mean()), float(known.std())
        described |= {"min": low, "max": high, "mean": _number(mean), "std": _number(std)}
        if math.isfinite(high - low):
            counts, _ = np.histogram(known, bins=_BINS, range=(low, high) if high > low else (low - 0.5, low + 0.5))
            described["histogram"] = counts.tolist()
    return described


def pictures(array: NDArray[Any]) -> list[str]:
    """Return the channels of the first item as grey base64 PNGs, dark for the minimum; a matrix is one channel.

    Empty if the array is not a feature map.
    """
    if array.dtype.kind == "c" or array.ndim < 2 or 0 in array.shape:
        return []
    maps = array[0] if array.ndim > 2 else array[None]
    maps = maps.reshape(-1, *maps.shape[-2:])[:_CHANNELS] if maps.ndim > 2 else maps[None]
    if max(maps.shape[-2:]) == 1:
        return []
    return [to_text(encode_png(_grey(each.astype(np.float64)))) for each in maps]


def _grey(plane: NDArray[np.float64]) -> Image.Image:
    step = max(1, -(-max(plane.shape) // _SIDE))
    plane = plane[::step, ::step]
    known = plane[np.isfinite(plane)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    # The difference of two finite numbers may overflow; that of their halves does not.
    spread = high / 2 - low / 2
    scaled = (plane / 2 - low / 2) / spread if spread else np.zeros_like(plane)
    return Image.fromarray(np.nan_to_num(np.clip(scaled, 0, 1) * 255).astype(np.uint8))


def _number(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (bool, int, float)) else str(value)


def activation(model: Model, request: InferRequest, operand: str) -> dict[str, Any]:
    """Return statistics and channel pictures of an operand, computed by the reference layers.

    Raises:
        NotFoundError: the graph has no operand, input or output of that name or alias.
        ServiceError, EngineError: as for a run.
    """
    operand = _operand(model, operand)
    prepared = model.prepare(request)
    # Every value of the run may be kept.
    with running(model.session.estimate_bytes(prepared.tensors)):
        value = model.session.run(prepared.tensors, taps=[operand]).taps[operand]
    charge(COST)
    array = np.asarray(value) if isinstance(value, (np.ndarray, int, float, bool)) else None
    if array is None:
        return {"operand": operand, "shape": None, "dtype": None, "first": [str(value)[:200]], "pictures": []}
    return {"operand": operand, **figures(array), "pictures": pictures(array)}


def _operand(model: Model, name: str) -> str:
    """Return the operand of a name: an operand's own, or an input's or output's.

    Raises:
        NotFoundError: there is none.
    """
    if name in model.session.graph.operands:
        return name
    port = model.signature.find_input(name) or model.signature.output(name)
    if port is None:
        raise NotFoundError(f"model '{model.name}' has no operand '{cut(name)}'")
    return port.operand
