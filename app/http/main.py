"""Construction of the app. Importing this module has no effect; ``create_app`` builds everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from app.http.access import Access, AccessPolicy, OriginPolicy
from app.http.middleware import RequestMiddleware
from app.http.openapi import install_openapi
from app.http.responses import install_error_handlers
from app.http.routes import audio, events, graph, infer, inspection, moving, pages, status, text, trials
from app.http.v2.app import V2App
from app.keys import Keys, open_keys
from app.metrics.collector import MetricsCollector
from app.models.folder.plugins import load_plugins
from app.protocol.v2.runtime_settings import RuntimeSettings, install
from app.protocol.v2.shared_memory import open_shared_memory
from app.serving.dataplane import DataPlane
from app.settings import Settings
from app.tracing import open_spans
from app.version import version

DESCRIPTION = """PNNX models over HTTP. `POST /infer` takes JSON, pictures, .npy, .npz and forms of those.

Every error is `{"error": {"code", "message", "detail"?}}`."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return an app that serves the models of settings.store; None reads the settings from the environment.

    Models begin to load when the app's lifespan starts, and all work ends with it.
    """
    settings = settings if settings is not None else Settings.from_env()
    load_plugins(settings.plugins)
    # No redirects: a POST would not show their reason, whereas an unknown path is explained.
    app = FastAPI(
        title="pnnx-serve",
        version=version(),
        description=DESCRIPTION,
        lifespan=_lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's page loads scripts from another host; ours is app/http/routes/pages.py
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.keys = open_keys(settings)
    app.state.access = AccessPolicy(app.state.keys, OriginPolicy(settings))
    app.state.dataplane = DataPlane(settings)
    app.state.metrics = MetricsCollector(app.state.dataplane)
    app.state.spans = open_spans(settings)
    app.state.runtime_settings = RuntimeSettings()
    install(app.state.dataplane.commands, app.state.runtime_settings)
    app.state.shared_memory = open_shared_memory(settings)
    app.router.routes.append(V2App(app.state.dataplane, app.state.runtime_settings, app.state.shared_memory))
    app.state.pulses = events.Pulses(app.state.dataplane)
    for router in (status.health_router, status.metrics_router, status.models_router):
        app.include_router(router)
    for each in (graph, inspection, trials, events, pages, text, audio, moving):
        app.include_router(each.router)
    app.include_router(trials.comparing)
    app.include_router(infer.make_router())
    install_openapi(app)
    install_error_handlers(app)
    for layer in _layers(app.state, settings):
        app.add_middleware(layer.cls, *layer.args, **layer.kwargs)
    return app


def _layers(state: State, settings: Settings) -> Iterator[Middleware]:
    """Yield the middleware, the innermost first."""
    yield Middleware(Access, policy=state.access)
    if settings.cors_origins:  # around access control, since a browser's preflight request has no key
        yield Middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After", "Retry-After-Ms", "Server-Timing", "X-Cache", "traceparent"],
        )
    yield Middleware(
        RequestMiddleware, statuses=state.metrics.statuses, access_log=settings.access_log, spans=state.spans
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    plane: DataPlane = app.state.dataplane
    keys: Keys | None = app.state.keys
    await plane.start()
    if keys is not None:
        keys.start()
    try:
        yield
    finally:
        if keys is not None:
            keys.close()
        await plane.close()
        if app.state.spans is not None:
            await app.state.spans.close()
