"""Report of ``pnnx-serve quantize`` that lies beside a quantised version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import engine
from app.errors import ConfigError, NotFoundError
from app.messages import explain_validation
from app.models.folder.layout import QUANTISATION
from app.models.folder.repository import VersionFiles
from app.models.folder.toml import check_links

_MAX_BYTES: Final = 8 << 20
_MAX_LAYERS: Final = 20_000
Text = Annotated[str, Field(max_length=1000)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class QuantisedLayer(_Part):
    """A layer, as ``engine.LayerReport``; a layer without an error has no ratio of signal to noise."""

    name: Text
    type: Text
    precision: Literal["int8", "bf16", "int8-weights", "int4-weights", "float32"]
    float_us: Number
    bf16_us: Number | None = None
    int8_us: Number | None
    sqnr_db: Number | None
    share: Number
    restore_us: Number = 0.0
    restore_share: Number = 0.0
    saved_bytes: int = 0
    reason: Text = ""


class Accuracy(_Part):
    """Accuracy on labelled samples, as ``engine.AccuracyChange``."""

    samples: int
    before: Number
    after: Number
    lost: int
    gained: int
    change: Number
    interval: Annotated[list[Number], Field(min_length=2, max_length=2)]


class QuantisationReport(_Part):
    """The whole report; without samples there is no share that is kept."""

    kept: Number | None
    float_ms: Number
    int8_ms: Number
    saved_bytes: int = 0
    samples: int
    layers: Annotated[list[QuantisedLayer], Field(max_length=_MAX_LAYERS)]
    accuracy: Accuracy | None = None


def measured_times(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of times that a report of layers has: the title and the key of each."""
    columns = {"float32": "float_us", "bf16": "bf16_us", "quantised": "int8_us"}
    return {title: key for title, key in columns.items() if any(row[key] is not None for row in layers)}


def read_report(files: VersionFiles, name: str) -> dict[str, Any] | None:
    """Return the report beside a version, None without one.

    Raises:
        NotFoundError: the file is not such a report, or a link that leads out of the store.
    """
    path = (files.bundle or files.param.parent) / QUANTISATION
    if not path.is_file():
        return None
    try:
        if files.roots:
            check_links(path, files.roots)
        report = QuantisationReport.model_validate_json(bytes(engine.read_file(path, _MAX_BYTES)))
    except ValidationError as exc:
        problem = explain_validation(exc.errors()[0])
        raise NotFoundError(f"model '{name}': {QUANTISATION} is not a report: {problem}") from None
    except (ConfigError, engine.EngineError) as exc:
        raise NotFoundError(f"model '{name}': {QUANTISATION}: {exc}") from None
    return report.model_dump()
