"""What one operator makes of an input, as numbers and as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.console.figures import COST, figures, pictures
from app.errors import NotFoundError
from app.memory.allowance import charge, check, running
from app.models.model import Model
from app.models.request import InferRequest
from app.wording import cut


def activation(model: Model, request: InferRequest, operand: str) -> dict[str, Any]:
    """Figures of an operand's value and its channels as pictures, from a run of the reference layers.

    Raises:
        NotFoundError: the graph has no such operand.
        ServiceError, EngineError: as a run would be refused, or fail.
    """
    if operand not in model.session.graph.operands:
        raise NotFoundError(f"model '{model.name}' has no operand '{cut(operand)}'")
    prepared = model.prepare(request)
    # Every value of the run may be alive: nothing is forgotten before it is looked at.
    with running(model.session.estimate_bytes(prepared.tensors)):
        value = model.session.run(prepared.tensors, taps=[operand], cancelled=_is_late).taps[operand]
    charge(COST)
    array = np.asarray(value) if isinstance(value, (np.ndarray, int, float, bool)) else None
    if array is None:
        return {"operand": operand, "shape": None, "dtype": None, "first": [str(value)[:200]], "pictures": []}
    return {"operand": operand, **figures(array), "pictures": pictures(array)}


def _is_late() -> bool:
    check()
    return False
