"""Inspection of a model: its samples, values of operators for an input, profiles and reports."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from app.codec.answers import dump_json
from app.codec.message import read_version
from app.codec.parse import parse
from app.console.figures import activation
from app.console.profiling import inputs_to_measure, profile
from app.console.quantisation import QuantisationReport, read_report
from app.console.report import measured_report
from app.console.samples import list_samples, read_sample
from app.http.body import dataplane, first_headers, read_body, until_disconnect
from app.http.model_request import read_limit
from app.http.responses import ChargedResponse, json_response
from app.http.schemas import REFUSED, VersionNumber
from app.models.model import Model
from app.models.request import InferRequest

router = APIRouter(prefix="/models/{name}")

_ERRORS: Final[dict[int | str, dict[str, Any]]] = dict.fromkeys(
    (400, 404, 408, 413, 415, 422, 429, 500, 503, 504), REFUSED
)
_REPORT: Final[dict[int | str, dict[str, Any]]] = {**_ERRORS, 200: {"content": {"text/html": {}}}}
# No scripts and no external resources; styles are inline.
_STATIC: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PATH: Final = "/graph/operand"
Operand = Annotated[str, Query(description="name of the operand, as in /graph")]

Shape = Annotated[
    list[str] | None,
    Query(description="shape of an input, such as 1,3,224,224; once for each input", max_length=64),
]
Sample = Annotated[str | None, Query(description="name of the sample to run on")]


@router.get("/samples", tags=["models"], responses={404: REFUSED}, summary="Samples of a model")
async def samples(request: Request, name: str) -> Response:
    """Images and arrays in `examples/` of the model's folder."""
    plane = dataplane(request)
    files = plane.store.entry(name).files
    return json_response({"samples": await plane.offload(partial(list_samples, files), plane.deadline())})


@router.get(
    "/samples/{sample}",
    tags=["models"],
    responses={404: REFUSED},
    summary="A sample of a model",
    response_class=Response,
)
async def sample(request: Request, name: str, sample: str) -> Response:
    """The file, unchanged."""
    plane = dataplane(request)
    read = partial(read_sample, plane.store.entry(name).files, sample)
    content, media_type = await plane.offload(read, plane.deadline())
    return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})


@router.get("/profile", tags=["graph"], responses=_ERRORS, summary="Profile of a run", response_class=Response)
async def profile_of(
    request: Request, name: str, version: VersionNumber = None, shape: Shape = None, sample: Sample = None
) -> Response:
    """Profile the fastest of several runs: operators, kernels (time, work, bytes, thread), memory and machine.

    The input is zeros, or the first sample of a model with dynamic sizes.
    """
    plane = dataplane(request)
    files, found = plane.store.entry(name).files, plane.store.version(name, read_version(version))
    with plane.memory.answering():

        def measure(model: Model) -> dict[str, Any]:
            return profile(model, plane.settings, *inputs_to_measure(model, files, plane.settings, shape or [], sample))

        return json_response(await until_disconnect(request, plane.run_on_model(found, measure, plane.deadline())))


@router.get(
    "/quantisation",
    tags=["graph"],
    responses={**_ERRORS, 200: {"model": QuantisationReport | None}},
    summary="Report of pnnx-serve quantize",
    response_class=Response,
)
async def quantisation(request: Request, name: str, version: VersionNumber = None) -> Response:
    """Time, error and precision of each layer of a quantised version; null if it was not made by that command."""
    plane = dataplane(request)
    found = plane.store.version(name, read_version(version))
    return json_response(await plane.offload(partial(read_report, found.files, name), plane.deadline()))


@router.get("/report", tags=["graph"], responses=_REPORT, summary="Profile as one HTML file", response_class=Response)
async def report_of(
    request: Request, name: str, version: VersionNumber = None, shape: Shape = None, sample: Sample = None
) -> Response:
    """Graph, profile and machine as one HTML file that needs no server, for example to attach to an issue."""
    plane = dataplane(request)
    files, found = plane.store.entry(name).files, plane.store.version(name, read_version(version))
    headers = {"content-disposition": f'attachment; filename="{name}.html"', "content-security-policy": _STATIC}
    with plane.memory.answering():
        quantised = await plane.offload(partial(read_report, found.files, name), plane.deadline())

        def write(model: Model) -> str:
            return measured_report(model, model.name, files, plane.settings, quantised, shape or [], sample)

        work = plane.run_on_model(found, write, plane.deadline())
        return Response(await until_disconnect(request, work), media_type="text/html", headers=headers)


@router.post(
    _PATH,
    tags=["graph"],
    responses=_ERRORS,
    summary="Value of an operand for an input",
    response_class=Response,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}, "image/*": {}}}},
)
async def operand(request: Request, name: str, operand: Operand, version: VersionNumber = None) -> Response:
    """The body is that of `/infer`. Statistics of an operand, its channels as images, from a reference run."""
    plane = dataplane(request)
    with plane.memory.answering() as reservation:
        head = first_headers(request)
        deadline = plane.deadline(read_limit(head))
        body = await read_body(request, plane.settings.max_body_bytes, deadline, reservation)
        content_type = head.get(b"content-type", b"").decode("latin-1")
        found = plane.store.version(name, read_version(version))
        message = await plane.offload(partial(parse, body, content_type, plane.settings), deadline)
        asked = InferRequest(decode=message.decode, parameters={})
        work = plane.run_on_model(found, lambda model: dump_json(activation(model, asked, operand)), deadline)
        text = await until_disconnect(request, work)
        reservation.charge(len(text))
        return ChargedResponse([text], reservation, "application/json")
