"""What routes need of the app that runs them."""

from __future__ import annotations

from starlette.requests import Request

from app.serving.dataplane import DataPlane


def dataplane(request: Request) -> DataPlane:
    """The app's data plane."""
    plane = request.app.state.dataplane
    assert isinstance(plane, DataPlane)
    return plane
