"""GET /: a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

# In memory: it needs no file descriptor, and no ranges of it are asked for.
_INDEX: Final = (Path(__file__).parents[2] / "static" / "index.html").read_bytes()


@router.get("/")
async def index() -> HTMLResponse:
    """Where to go from here."""
    return HTMLResponse(_INDEX)
