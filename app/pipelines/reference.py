"""Names of values in ``pipeline.toml``.

``picture``             an input of the request, of any name without a dot
``find.box``            field of each prediction of step ``find``
``encode.outputs.out0`` output of the model of step ``encode``
"""

from __future__ import annotations

from typing import Final, NamedTuple

_OUTPUTS: Final = "outputs"


class Reference(NamedTuple):
    """Name of a value.

    Attributes:
        step: an earlier step, or None for the request.
        field: input of the request, field of a prediction, or output.
        is_output: whether it is an output of the step's model.
    """

    step: str | None
    field: str
    is_output: bool = False


def parse_reference(text: str) -> Reference:
    """Return the reference that a text names."""
    step, dot, field = text.partition(".")
    if not dot:
        return Reference(None, text)
    head, dot, name = field.partition(".")
    return Reference(step, name, is_output=True) if dot and head == _OUTPUTS else Reference(step, field)
