"""GET /metrics: for Prometheus. Everything is read when it is asked for, and nothing waits for a model.

It is read and written in a thread: the event loop goes on answering, however many models there are.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.http.body import dataplane
from app.metrics.collector import MetricsCollector
from app.settings import Settings

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
    metrics: MetricsCollector = request.app.state.metrics
    settings = dataplane(request).settings
    page, media_type = await asyncio.to_thread(_page, metrics, settings, request.headers.get("accept", ""))
    return Response(page, headers={"content-type": media_type})


def _page(metrics: MetricsCollector, settings: Settings, accept: str) -> tuple[bytes, str]:
    from app.metrics.exposition import expose  # prometheus_client is imported when a page is first asked for

    return expose(
        metrics.read(),
        accept,
        with_triton_names=settings.metrics_triton_names,
        with_histograms=settings.metrics_histograms != "none",
    )
