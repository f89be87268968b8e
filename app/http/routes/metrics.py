"""GET /metrics: for Prometheus. Everything is read when it is asked for, and nothing waits for a model."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.http.routes.state import dataplane
from app.metrics.meter import Meter

router = APIRouter(tags=["health"])
_TYPES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")
        }
    }
}  # fmt: skip


@router.get("/metrics", responses=_TYPES, response_class=Response, summary="Figures for Prometheus")
async def metrics(request: Request) -> Response:
    """In the text format, or as OpenMetrics where `Accept` says so. Of all workers, whichever answers."""
    # Needed here alone, and by nobody who never asks.
    from app.metrics.exposition import expose

    meter: Meter = request.app.state.meter
    settings = dataplane(request).settings
    accept = request.headers.get("accept", "")
    page, media_type = await expose(meter.read(), accept, with_triton_names=settings.metrics_triton_names)
    return Response(page, headers={"content-type": media_type})
