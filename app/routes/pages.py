"""GET /: a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse

router = APIRouter(include_in_schema=False)

_INDEX: Final = Path(__file__).parent.parent / "static" / "index.html"


@router.get("/")
async def index() -> FileResponse:
    """Where to go from here."""
    return FileResponse(_INDEX, media_type="text/html")
