"""GET /health, /models and /metrics: readiness, models and metrics of the server."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.errors import ModelNotReadyError
from app.http.body import dataplane
from app.http.responses import json_response
from app.http.schemas import REFUSED, ErrorBody, Live, ModelDetails, ModelList, Ready
from app.metrics.collector import MetricsCollector
from app.models.registry.index import details, summaries
from app.settings import Settings

health_router = APIRouter(prefix="/health", tags=["health"])
models_router = APIRouter(prefix="/models", tags=["models"])
metrics_router = APIRouter(tags=["health"])
_TYPES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")
        }
    }
}  # fmt: skip


@health_router.get("/live", responses={200: {"model": Live}}, summary="Liveness of the process")
async def live() -> Response:
    """True as long as the server can answer, even while models load."""
    return json_response({"live": True})


@health_router.get(
    "/ready",
    responses={200: {"model": Ready}, 503: {"model": ErrorBody}},
    summary="Readiness of all models",
)
async def ready(request: Request) -> Response:
    """503 while models load, if one failed to load, if there is none, and when the server is stopping."""
    plane = dataplane(request)
    reason = plane.unready_reason()
    if reason is None:
        return json_response({"ready": True})
    error = ModelNotReadyError(f"not ready: {reason}")
    return json_response({"ready": False, **error.body()}, error.status, error.headers)


@models_router.get("", responses={200: {"model": ModelList}}, summary="All models of the store")
async def list_models(request: Request) -> Response:
    """List all models, with the reason if one failed to load."""
    return json_response({"models": summaries(dataplane(request).store)})


@models_router.get("/{name}", responses={200: {"model": ModelDetails}, 404: REFUSED}, summary="One model in detail")
async def show_model(request: Request, name: str) -> Response:
    """Versions, inputs, outputs, labels, preprocessing and statistics."""
    store = dataplane(request).store
    return json_response(details(store.entry(name), store))


@metrics_router.get("/metrics", responses=_TYPES, response_class=Response, summary="Prometheus metrics")
async def metrics(request: Request) -> Response:
    """Metrics of all workers in Prometheus' text format, or in OpenMetrics if `Accept` asks for it."""
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
