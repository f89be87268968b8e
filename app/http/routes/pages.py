"""Web pages: the console (GET /), GET /docs, and the files they load.

They load nothing from other hosts, and their policy forbids it.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(include_in_schema=False)

_STATIC: Final = Path(__file__).parents[2] / "static"
# In memory, which needs no file descriptors.
_INDEX: Final = (_STATIC / "console" / "index.html").read_bytes()
_DOCS: Final = (_STATIC / "docs.html").read_bytes()
# Files that /docs loads, with path and type; Swagger UI is stored compressed (docs/fetch_swagger_ui.py).
_PARTS: Final = {
    "start.js": ("docs.js", "text/javascript"),
    "docs.css": ("docs.css", "text/css"),
    "swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js.gz", "text/javascript"),
    "swagger-ui.css": ("swagger-ui/swagger-ui.css.gz", "text/css"),
}
_TYPES: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Images in answers are blobs; Swagger UI's are data URLs.
_OWN: Final = "script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self'; img-src 'self' data: blob:"
_SOUNDS: Final = "media-src blob:"
_HEADERS: Final = {"content-security-policy": f"{_NOTHING}; {_OWN}; {_SOUNDS}", "cache-control": "no-cache"}


@router.get("/")
async def index() -> HTMLResponse:
    """The console."""
    return HTMLResponse(_INDEX, headers=_HEADERS)


@router.get("/docs")
async def docs() -> HTMLResponse:
    """Interactive API documentation."""
    return HTMLResponse(_DOCS, headers=_HEADERS)


def _part(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def part(request: Request) -> Response:
        plain, packed, tag = _contents(name)
        headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, media_type=media_type, headers={**headers, "content-encoding": "gzip"})
        return Response(plain(), media_type=media_type, headers=headers)

    return part


def _parts() -> Iterator[tuple[str, str, str]]:
    """Yield path, file and type of every file that pages load; no other file is served."""
    yield from ((f"/docs/{name}", *part) for name, part in _PARTS.items())
    for path in sorted((_STATIC / "console").rglob("*")):
        if path.suffix in _TYPES:
            yield f"/{path.relative_to(_STATIC)}", str(path.relative_to(_STATIC)), _TYPES[path.suffix]


for _path, _name, _type in _parts():
    router.add_route(_path, _part(_name, _type), methods=["GET"], include_in_schema=False)


@functools.cache
def _contents(name: str) -> tuple[Callable[[], bytes], bytes, str]:
    """Return a function for a file's content, its compressed content and its tag; cached."""
    data = (_STATIC / name).read_bytes()
    packed = data if name.endswith(".gz") else gzip.compress(data, mtime=0)
    return lambda: gzip.decompress(packed), packed, f'"{hashlib.sha256(packed).hexdigest()[:32]}"'
