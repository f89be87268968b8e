"""What a client could send in place of a large tensor as text: told once for each model, in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from app.signature import Inputs, Signature

log = logging.getLogger(__name__)

# From here on the text takes longer to read than most models take to run.
_LARGE: Final = 1 << 16
# Models come and go as long as a server lives.
_MAX_MODELS: Final = 1000

_told: dict[str, None] = {}


def advised(decode: Callable[[Signature], Inputs], model: str) -> Callable[[Signature], Inputs]:
    """The same decoding of JSON, with advice where there is some to give."""

    def decoding(signature: Signature) -> Inputs:
        inputs = decode(signature)
        for value in inputs.values():
            advise(model, value)
        return inputs

    return decoding


def advise(model: str, value: Any) -> None:
    """A client has sent this input as JSON."""
    if not isinstance(value, np.ndarray) or value.nbytes <= _LARGE or model in _told:
        return
    if len(_told) >= _MAX_MODELS:
        _told.clear()
    _told[model] = None
    log.info(
        "model '%s': a tensor of %d kB came as JSON; as .npy to /infer, or binary to /v2, it would take a tenth of the"
        " time to read",
        model,
        value.nbytes // 1000,
    )
