"""The OpenAPI document: FastAPI's document of the routes, with working examples.

Examples are built from the served models, so that each can be sent unchanged; its name begins with the status of the
answer, ``x-status`` has it for programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.codec.answers import dump_json
from app.codec.parse import JSON
from app.http.access import group_of
from app.http.v2.openapi import v2_paths
from app.models.model import Model
from app.models.registry.version import Version
from app.serving.dataplane import DataPlane
from app.tasks.image import PIXEL

_MAX_EXAMPLE_ELEMENTS: Final = 512
_MAX_EXAMPLE_MODELS: Final = 8
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_WHY: Final = {"401": "no key, or an unknown one", "403": "the key does not allow this"}


def install_openapi(app: FastAPI) -> None:
    """Let the app build its document on request, and again when other models are ready, since examples depend on them.

    The bytes are cached, so that repeated requests cost the event loop next to nothing.
    """
    made: dict[tuple[tuple[str, int], ...], tuple[dict[str, Any], bytes]] = {}

    def document() -> tuple[dict[str, Any], bytes]:
        ready = _ready(app.state.dataplane)
        key = tuple((version.name, version.number) for version in ready)
        if key not in made:
            made.clear()
            found = _document(app, ready)
            made[key] = found, dump_json(found)
        return made[key]

    async def answer(_: Request) -> Response:
        return Response(document()[1], media_type="application/json")

    app.openapi = lambda: document()[0]  # type: ignore[method-assign]
    # Before FastAPI's own route, which serialises the document for each request.
    app.router.routes.insert(0, Route(app.openapi_url or "/openapi.json", answer, include_in_schema=False))


def _ready(plane: DataPlane) -> list[Version]:
    """Return the newest version of every model that is loaded."""
    newest = [entry.versions[-1] for entry in plane.store.entries if entry.versions]
    return [version for version in newest if version.model is not None]


def _document(app: FastAPI, ready: list[Version]) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
    )
    document["paths"] |= v2_paths()
    paths = document["paths"]
    _drop_validation_errors(document)
    if app.state.keys is not None:
        add_security(document)
    _add_examples(paths["/infer"], ready[:_MAX_EXAMPLE_MODELS], named=True)
    if ready:
        _add_examples(paths["/models/{name}/infer"], ready[:1], named=False)
        for path, operations in paths.items():
            for operation in operations.values() if "{name}" in path else ():
                operation["parameters"][0]["example"] = ready[0].name
    return document


def _drop_validation_errors(document: dict[str, Any]) -> None:
    """Remove FastAPI's 422 for parameters of the wrong type; here the answer is 400."""
    for path in document["paths"].values():
        for operation in path.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _add_examples(path: dict[str, Any], versions: list[Version], *, named: bool) -> None:
    examples = {
        f"{status} {title}": {"summary": title, "x-status": status, "value": value}
        for version in versions
        if version.model is not None
        for title, status, value in _examples(version.model, named)
    }
    if named:
        unknown = {"model": "no-such-model", "inputs": [[0]]}
        examples["404 unknown model"] = {"summary": "unknown model", "x-status": 404, "value": unknown}
    path["post"]["requestBody"]["content"][JSON]["examples"] = examples


def _examples(model: Model, named: bool) -> Iterator[tuple[str, int, dict[str, Any]]]:
    name = {"model": model.name} if named else {}
    title = f"{model.name}: " if named else ""
    zeros = model.example_inputs()
    if zeros is not None and sum(array.size for array in zeros.values()) <= _MAX_EXAMPLE_ELEMENTS:
        inputs = {key: array.tolist() for key, array in zeros.items()}
        yield f"{title}tensors", 200, {**name, "inputs": inputs}
        flat = {k: {"shape": [*a.shape], "dtype": a.dtype.name, "data": a.ravel().tolist()} for k, a in zeros.items()}
        yield f"{title}flat tensors with shape and dtype", 200, {**name, "inputs": flat}
    takes_any_size = model.preprocessor is not None and model.preprocessor.config.resize != "none"
    if takes_any_size and len(model.signature.inputs) == 1:
        yield f"{title}picture", 200, {**name, "inputs": {"image": PIXEL}}
    yield f"{title}inputs missing", 400, name
    yield (
        f"{title}wrong shape",
        422,
        {**name, "inputs": {port.name: [[[[[[[0]]]]]]] for port in model.signature.inputs}},
    )


def add_security(document: dict[str, Any]) -> None:
    """Document the keys that operations need."""
    document["components"]["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            group = group_of(method.upper(), path)
            if group is not None:
                operation["security"] = [{name: []} for name in _SCHEMES]
                operation["description"] = f"{operation.get('description', '')}\n\nNeeds an {group} key.".strip()
                for status, why in _WHY.items():
                    operation["responses"][status] = {"description": why, "content": _content(operation)}


def _content(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the operation's other errors."""
    others = (answer["content"] for status, answer in operation["responses"].items() if status >= "4")
    return next(others, {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}})
