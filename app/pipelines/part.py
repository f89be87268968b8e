"""Properties of a step's model that plans are checked against."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.models.servable import Servable
from app.schema import Body


@dataclass(frozen=True, slots=True)
class Finding:
    """Form of a model's prediction for one item.

    Args:
        is_list: whether it is a list of predictions, which later steps go through, or has one.
        fields: types of the fields of each; None if they are not known, as of a pipeline.
        key: field of the prediction with the list; None if the prediction is the list.
    """

    is_list: bool
    fields: Mapping[str, Any] | None
    key: str | None = None

    def rows(self, found: Any) -> list[dict[str, Any]]:
        """Return the predictions in one that a model has returned."""
        if found is None:
            return []
        rows = found if self.key is None else found[self.key]
        return rows if isinstance(rows, list) else [rows]

    def has(self, field: str) -> bool:
        """Return whether a prediction may have this field."""
        return self.fields is None or field in self.fields

    def type_of(self, field: str) -> Any:
        """Return the type of a field, None if it is not known."""
        return None if self.fields is None else self.fields.get(field)

    def is_text(self, field: str) -> bool:
        """Return whether the field is a text."""
        return self.fields is not None and self.fields.get(field) is str

    def is_vector(self, field: str) -> bool:
        """Return whether the field is a list of numbers."""
        return self.fields is not None and self.fields.get(field) == list[float]


def finding_of(model: Servable) -> Finding | None:
    """Return the form of a model's predictions, None if it has none."""
    found = model.finding
    if found is None:
        return None
    is_list = typing.get_origin(found) is list
    body = typing.get_args(found)[0] if is_list else found
    if not (isinstance(body, type) and issubclass(body, Body)):
        return Finding(is_list, None)
    fields = {key: each.annotation for key, each in body.model_fields.items()}
    if SPANS in fields:
        spans = typing.get_args(fields[SPANS])[0].model_fields
        return Finding(True, {key: each.annotation for key, each in spans.items()}, SPANS)
    return Finding(is_list, fields)


# Field of a prediction about a sound whose parts later steps go through.
SPANS: Final = "spans"
