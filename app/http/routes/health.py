"""GET /health/live and /health/ready: the truth, for probes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.errors import ModelNotReadyError
from app.http.body import dataplane
from app.http.openapi.schemas import ErrorBody, Live, Ready
from app.http.responses import json_response

router = APIRouter(prefix="/health", tags=["health"])


@router.get("/live", responses={200: {"model": Live}}, summary="Does the process answer?")
async def live() -> Response:
    """True as long as the server can answer at all, also while models load."""
    return json_response({"live": True})


@router.get(
    "/ready",
    responses={200: {"model": Ready}, 503: {"model": ErrorBody}},
    summary="Does every model that should be served run?",
)
async def ready(request: Request) -> Response:
    """False while models load, when one has failed to, when there is none, and from the moment the server stops."""
    plane = dataplane(request)
    reason = plane.unready_reason()
    if reason is None:
        return json_response({"ready": True})
    error = ModelNotReadyError(f"not ready: {reason}", retry_after_s=plane.settings.retry_after_s)
    return json_response({"ready": False, **error.body()}, error.status, error.headers)
