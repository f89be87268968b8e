"""Measurements of ways to run a model, and comparisons of models, reported as events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from numpy.typing import NDArray
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

import engine
from app.codec.message import read_version
from app.codec.parse import parse
from app.console.samples import read_sample
from app.errors import InvalidRequestError
from app.http.body import dataplane, first_headers, read_body
from app.http.model_request import read_limit
from app.http.progress_events import STREAMED, BackgroundWork, Report
from app.http.responses import json_response
from app.http.schemas import REFUSED, VersionNumber
from app.messages import explain_validation
from app.models.registry.version import Version
from app.models.request import InferRequest
from app.serving.dataplane import DataPlane
from app.trials.comparing import compare, read_entries
from app.trials.sessions import MAX_BATCH, MAX_CANDIDATES, Grid, as_served, example, usual_threads
from app.trials.tuning import Surroundings, tune

log = logging.getLogger(__name__)
router = APIRouter(prefix="/models/{name}")
comparing = APIRouter()

# Bytes of a list of candidates.
_MAX_BODY: Final = 1 << 16
# Time limits; candidates may compile, and runs wait until the server is idle.
_LIMIT_S: Final = 900.0
_COMPARING_S: Final = 300.0
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: STREAMED,
    **dict.fromkeys((400, 403, 404, 408, 413, 415, 422, 429, 500, 503, 504), REFUSED),
}
_FOUND: Final[dict[int | str, dict[str, Any]]] = dict.fromkeys((400, 404, 503), REFUSED)
Entries = Annotated[
    str,
    Query(
        description="comma-separated, each MODEL:VERSION:BACKEND:THREADS:PRECISION; omitted parts are as served. "
        "The first is the reference of the others",
        examples=["digits,digits:1:reference"],
    ),
]
Tolerance = Annotated[
    float | None, Query(ge=0, description="tolerance relative to an output's largest magnitude; default: the engine's")
]


@router.get("/tune", tags=["trials"], responses=_FOUND, summary="Options for measurements")
async def tunable(request: Request, name: str, version: VersionNumber = None) -> Response:
    """Show how the model runs now, and which alternatives can be measured."""
    plane = dataplane(request)
    found = plane.store.version(name, read_version(version))
    session, threads = found.network.session, plane.budget.threads
    return json_response(
        {
            "model": name, "version": found.number, "served": as_served(session, threads).describe(),
            "threads": usual_threads(threads), "most_threads": threads, "passes": list(engine.PASS_NAMES),
            "most_candidates": MAX_CANDIDATES, "most_batch": MAX_BATCH,
            "needs_sample": found.network.example_inputs() is None,
        }
    )  # fmt: skip


@router.post(
    "/tune",
    tags=["trials"],
    responses=_RESPONSES,
    summary="Measure ways to run the model",
    response_class=Response,
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": Grid.model_json_schema()}}}},
)
async def tuning(request: Request, name: str, version: VersionNumber = None) -> Response:
    """Server-sent events while the client listens: threads, batch sizes, algorithms and passes are measured in turn."""
    plane = dataplane(request)
    found = plane.store.version(name, read_version(version))

    def work(report: Report, cancelled: Callable[[], bool]) -> None:
        sample = _sample(plane, found, grid.sample)
        log.info("tuning model '%s' version %d: %d candidates", name, found.number, len(candidates))
        try:
            tune(name, found.network.session, candidates, sample, grid.seconds, around(plane, cancelled), report)
        finally:
            log.info("tuning of model '%s' version %d has ended", name, found.number)

    with plane.memory.answering() as reservation:
        grid = _read(bytes(await read_body(request, _MAX_BODY, plane.deadline(), reservation)) or b"{}")
        try:
            candidates = grid.candidates(plane.budget.threads)
        except ValueError as exc:
            raise InvalidRequestError(str(exc)) from None
        return await BackgroundWork(plane, reservation, name, work, _LIMIT_S).answer()


@comparing.post(
    "/compare",
    tags=["trials"],
    responses=_RESPONSES,
    summary="Run one input on several models and back ends",
    response_class=Response,
    openapi_extra={"requestBody": {"content": {"application/json": {}, "image/*": {}}}},
)
async def compared(request: Request, entries: Entries, rtol: Tolerance = None) -> Response:
    """The body is that of `/infer`, or empty. Server-sent events: answers, times, first difference of outputs."""
    plane = dataplane(request)
    wanted = read_entries(entries, plane.store.version, plane.settings, plane.budget.threads)
    with plane.memory.answering() as reservation:
        head = first_headers(request)
        body = await read_body(request, plane.settings.max_body_bytes, plane.deadline(read_limit(head)), reservation)
        content_type = head.get(b"content-type", b"").decode("latin-1")

        def work(report: Report, cancelled: Callable[[], bool]) -> None:
            asked = None
            if body:
                asked = InferRequest(decode=parse(body, content_type, plane.settings).decode, parameters={})
            compare(wanted, asked, rtol, around(plane, cancelled), report)

        return await BackgroundWork(plane, reservation, wanted[0].name, work, _COMPARING_S).answer()


def around(plane: DataPlane, cancelled: Callable[[], bool]) -> Surroundings:
    """Return the conditions of measurements on a server: beside its requests, which have precedence."""
    return Surroundings(
        settings=plane.settings, threads=plane.budget.threads, is_quiet=lambda: plane.is_quiet, cancelled=cancelled
    )


def _read(body: bytes) -> Grid:
    try:
        return Grid.model_validate_json(body)
    except ValidationError as exc:
        problems = [
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {explain_validation(each)}"
            for each in exc.errors(include_url=False)[:10]
        ]
        raise InvalidRequestError("; ".join(problems)) from None


def _sample(plane: DataPlane, version: Version, name: str | None) -> list[NDArray[Any]]:
    """Return one item to run the model on."""
    model = version.network
    if name is None:
        return example(model)
    message = parse(*read_sample(plane.store.entry(version.name).files, name), plane.settings)
    prepared = model.prepare(InferRequest(decode=message.decode, parameters={}))
    return [prepared.tensors[port.name] for port in model.session.graph.inputs]
