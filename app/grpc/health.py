"""gRPC's own health protocol: the server is its service "", a model the service of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.access.groups import Group
from app.errors import ModelNotReadyError
from app.grpc.call import Call
from app.protocol.grpc.schema import HEALTH, SERVICE, methods, parse
from app.protocol.v2.lookup import find
from app.serving.dataplane import DataPlane

_MAX_BYTES: Final = 1 << 12


class Health:
    """Answers Check.

    Args:
        check: raises where a call may not do what it asks for.
    """

    def __init__(self, plane: DataPlane, check: Callable[[Call, Group], None]) -> None:
        self._plane = plane
        self._check = check
        self._taken, self._given = methods(HEALTH)["Check"]

    async def check(self, call: Call) -> bytes:
        """Whether what is named can be used. Of the server everybody is told, of a model who may ask for models."""
        service = parse(self._taken, await call.read_one(_MAX_BYTES)).service
        if service in ("", SERVICE):
            is_serving = self._plane.unready_reason() is None
        else:
            self._check(call, Group.METADATA)
            is_serving = self._serves(service)
        return bytes(self._given(status="SERVING" if is_serving else "NOT_SERVING").SerializeToString())

    def _serves(self, model: str) -> bool:
        try:
            find(self._plane.store, model, None)
        except ModelNotReadyError:
            return False
        return True
