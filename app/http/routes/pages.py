"""Pages for people: GET /, and GET /docs with all it is made of. None names another host, or may load from one."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(include_in_schema=False)

_STATIC: Final = Path(__file__).parents[2] / "static"
# In memory: it needs no file descriptor, and no ranges of it are asked for.
_INDEX: Final = (_STATIC / "index.html").read_bytes()
_DOCS: Final = (_STATIC / "docs.html").read_bytes()
# What /docs loads, each with its file and its type; Swagger UI lies packed (docs/fetch_swagger_ui.py).
_PARTS: Final = {
    "start.js": ("docs.js", "text/javascript"),
    "swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js.gz", "text/javascript"),
    "swagger-ui.css": ("swagger-ui/swagger-ui.css.gz", "text/css"),
}
_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# What answers it shows may be pictures, made of bytes; Swagger UI's own are in its style.
_OWN: Final = "script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:"


def _policy(page: bytes) -> dict[str, str]:
    """The Content-Security-Policy of a page: its own styles, by their hashes."""
    styles = re.findall(rb"<style>(.*?)</style>", page, re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(style).digest()).decode()}'" for style in styles)
    return {"content-security-policy": f"{_NOTHING}; style-src {hashes}" if hashes else f"{_NOTHING}; {_OWN}"}


_INDEX_HEADERS: Final = _policy(_INDEX)
_DOCS_HEADERS: Final = _policy(_DOCS)


@router.get("/")
async def index() -> HTMLResponse:
    """Where to go from here."""
    return HTMLResponse(_INDEX, headers=_INDEX_HEADERS)


@router.get("/docs")
async def docs() -> HTMLResponse:
    """Every route, with examples to try."""
    return HTMLResponse(_DOCS, headers=_DOCS_HEADERS)


def _part(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def part(request: Request) -> Response:
        plain, packed, tag = _contents(name)
        headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, media_type=_PARTS[name][1], headers={**headers, "content-encoding": "gzip"})
        return Response(plain(), media_type=_PARTS[name][1], headers=headers)

    return part


for _name in _PARTS:
    router.add_route(f"/docs/{_name}", _part(_name), methods=["GET"], include_in_schema=False)


@functools.cache
def _contents(name: str) -> tuple[Callable[[], bytes], bytes, str]:
    """A part of the page as it is, packed, and its tag; read when it is first asked for."""
    data = (_STATIC / _PARTS[name][0]).read_bytes()
    packed = data if _PARTS[name][0].endswith(".gz") else gzip.compress(data, mtime=0)
    return lambda: gzip.decompress(packed), packed, f'"{hashlib.sha256(packed).hexdigest()[:32]}"'
