"""GET /graph and /models/{name}/graph: operators of a model, and their measured times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

import engine
from app.codec.answers import dump_json
from app.codec.message import read_version
from app.console.chart import chart
from app.console.figures import COST, figures
from app.errors import ConfigError, InvalidRequestError, ModelNotReadyError, NotFoundError
from app.http.body import dataplane
from app.http.responses import ChargedResponse
from app.http.schemas import REFUSED, VersionNumber
from app.messages import cut
from app.models.model import Model
from app.models.registry.version import Version
from app.models.servable import Servable
from app.pipelines.config import MAX_STEPS
from app.render import MEDIA_TYPES, render, with_times
from app.serving.dataplane import DataPlane

router = APIRouter(tags=["graph"])

_JSON_TYPE: Final = MEDIA_TYPES["json"]
_PARAM_TYPE: Final = "text/plain; charset=utf-8"
_MAX_TEXT_BYTES: Final = 1 << 28
# Memory of an operator in a description and a drawing, layout included.
_OPERATOR_BYTES: Final = 1 << 14
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {media_type.partition(";")[0]: {} for media_type in MEDIA_TYPES.values()}},
    **dict.fromkeys((400, 404, 413, 429, 503, 504), REFUSED),
}
Format = Annotated[
    Literal["json", "svg", "dot", "mermaid", "text", "param", "layout"],
    Query(description="param is the model's own file, layout has the positions of a drawing"),
]
Passes = Annotated[
    Literal["before", "after"],
    Query(description="layout: before fusion (every operator) or after (what one kernel computes as one)"),
]
Open = Annotated[
    str | None,
    Query(description="layout: comma-separated names of unfolded blocks; all; none. Default: as many as fit"),
]
By = Annotated[
    Literal["structure", "modules"] | None,
    Query(description="layout: blocks by structure (repetitions) or by module names; default: whichever is shorter"),
]
Show = Annotated[int | None, Query(ge=0, description="layout: index of an operator whose blocks are unfolded, too")]
Profile = Annotated[bool, Query(description="run the model once and add time_us to every operator")]
Operator = Annotated[str, Query(description="name of the operator")]
AttributeName = Annotated[str, Query(description="name of the attribute, such as weight")]


@dataclass(frozen=True, slots=True)
class _Look:
    """Requested form of a graph; all but version, format and profile concern layouts only."""

    version: VersionNumber = None
    format: Format = "json"
    profile: Profile = False
    passes: Passes = "after"
    open: Open = None
    by: By = None
    show: Show = None


Look = Annotated[_Look, Depends(_Look)]


@router.get("/graph", responses=_RESPONSES, summary="The graph of a model", response_class=Response)
async def graph(
    request: Request,
    look: Look,
    model: Annotated[str | None, Query(description="may be left out when there is one, or a default")] = None,
) -> Response:
    """Operators, operands, shapes, weights and costs."""
    return await _graph(dataplane(request), model, look)


@router.get("/models/{name}/graph", responses=_RESPONSES, summary="The graph of this model", response_class=Response)
async def model_graph(request: Request, name: str, look: Look) -> Response:
    """As /graph, with the model in the path."""
    return await _graph(dataplane(request), name, look)


@router.get(
    "/models/{name}/graph/attribute",
    responses=dict.fromkeys((400, 404, 429, 503, 504), REFUSED),
    summary="Statistics of a weight",
    response_class=Response,
)
async def attribute(
    request: Request, name: str, operator: Operator, attribute: AttributeName, version: VersionNumber = None
) -> Response:
    """Minimum, maximum, mean, standard deviation, histogram and first values of an operator's attribute."""
    plane = dataplane(request)
    found, deadline = plane.store.version(name, read_version(version)), plane.deadline()
    rows = {op.name: op for op in found.network.session.graph.operators}
    if operator not in rows or attribute not in rows[operator].attributes:
        raise NotFoundError(f"model '{name}' has no operator '{cut(operator)}' with an attribute '{cut(attribute)}'")
    array = rows[operator].attributes[attribute].data
    return await _drawing(plane, COST, lambda: dump_json(figures(array)), deadline, _JSON_TYPE)


async def _graph(plane: DataPlane, name: str | None, look: _Look) -> Response:
    version, deadline = plane.store.version(name, read_version(look.version)), plane.deadline()
    model = version.model
    assert model is not None  # Store.version returns ready versions only
    if look.format == "param":
        if look.profile:
            raise InvalidRequestError("profile: found format 'param', which has no times, expected another format")
        cost, media_type = _size(version), _PARAM_TYPE
        draw: Callable[[], bytes] = partial(_text, version)
    else:
        times = await plane.run_on_model(version, Model.profile, deadline) if look.profile else []
        cost = _OPERATOR_BYTES * _operators(model)
        media_type = MEDIA_TYPES.get(look.format, _JSON_TYPE)
        draw = partial(_drawn, version, times, look)
    return await _drawing(plane, cost, draw, deadline, media_type)


def _drawn(version: Version, times: list[dict[str, Any]], look: _Look) -> bytes:
    description = _description(version, times)
    if look.format != "layout":
        return render(description, look.format).encode()
    names = None if look.open is None else look.open.split(",")
    return dump_json(chart(description, names, fused=look.passes == "after", by=look.by or "", shown=look.show))


async def _drawing(
    plane: DataPlane, cost: int, draw: Callable[[], bytes], deadline: float, media_type: str
) -> Response:
    with plane.memory.answering() as reservation:
        text = await plane.draw(cost, draw, deadline)
        reservation.charge(len(text))
        return ChargedResponse([text], reservation, media_type)


def _operators(model: Servable) -> int:
    return len(model.session.graph.operators) if isinstance(model, Model) else MAX_STEPS


def _size(version: Version) -> int:
    if engine.is_onnx(version.files.param):
        return min(_MAX_TEXT_BYTES, _OPERATOR_BYTES * _operators(version.network))
    try:
        return min(_MAX_TEXT_BYTES, version.files.param.stat().st_size)
    except OSError:
        message = f"model '{version.name}': its file no longer exists"
        raise ModelNotReadyError(message) from None


def _text(version: Version) -> bytes:
    """Return the file in the store: pair or pipeline; for an ONNX model the equivalent pair."""
    if engine.is_onnx(version.files.param):
        return version.network.session.graph.text().encode()
    try:
        version.files.check_links()
        return engine.read_file(version.files.param, _MAX_TEXT_BYTES)
    except (ConfigError, engine.EngineError) as exc:
        raise ModelNotReadyError(f"model '{version.name}': {exc}") from None


def _description(version: Version, times: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the engine's description under the store's name, with the measured times."""
    assert version.model is not None  # Store.version returns ready versions only
    description = with_times(version.model.describe(), times)
    return {**description, "name": version.name, "version": version.number}
