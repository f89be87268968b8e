"""GET /models and /models/{name}: what is served."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.http.body import dataplane
from app.http.openapi.schemas import REFUSED, ModelDetails, ModelList
from app.http.responses import json_response
from app.models.keeping.catalogue import details, summaries

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", responses={200: {"model": ModelList}}, summary="All models of the store")
async def list_models(request: Request) -> Response:
    """Also those that failed to load, with the reason."""
    return json_response({"models": summaries(dataplane(request).store)})


@router.get("/{name}", responses={200: {"model": ModelDetails}, 404: REFUSED}, summary="One model in detail")
async def show_model(request: Request, name: str) -> Response:
    """Versions, inputs, outputs, labels, preprocessing and what it has done so far."""
    store = dataplane(request).store
    return json_response(details(store.entry(name), store))
