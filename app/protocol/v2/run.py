"""What a request says -> what its model is to do, and how long it may take."""

from __future__ import annotations

import time

from app.models.model import LIGHT_BYTES, InferRequest, Model
from app.protocol.v2.inputs import Decoder
from app.protocol.v2.outputs import Plan, plan_outputs
from app.protocol.v2.ports import wire_ports
from app.protocol.v2.regions import Regions
from app.protocol.v2.request import V2Request, read_count
from app.scheduling.job import USUAL_PRIORITY
from app.settings import Settings


def prepare(
    said: V2Request, model: Model, settings: Settings, regions: Regions | None = None, *, size: int | None = None
) -> tuple[Plan, InferRequest]:
    """What the answer is to hold, and the run that makes it.

    Args:
        size: bytes of the request, as they came; None where that says nothing.

    Raises:
        RefusedError: an output that there is not, or not in this form.
    """
    ports = wire_ports(model)
    plan = plan_outputs(said, ports, model.name, regions)
    decoder = Decoder(model.name, ports, model.signature, settings, regions)
    return plan, InferRequest(
        decode=lambda _: decoder.decode(said),
        outputs=plan.names,
        predict=False,
        parameters={},
        is_light=size is not None and size <= LIGHT_BYTES and not _is_elsewhere(said),
        priority=read_count(said.parameters, "priority") or USUAL_PRIORITY,
    )


def _is_elsewhere(said: V2Request) -> bool:
    """Whether some of it lies in shared memory, however short the request is."""
    said_of = [each.parameters for each in said.inputs or ()] + [each.parameters for each in said.outputs or ()]
    return any("shared_memory_region" in each for each in said_of)


def earlier(deadline: float, said: V2Request) -> float:
    """The request's own ``timeout``, in microseconds, where that is sooner.

    Raises:
        RefusedError: it is no whole number.
    """
    timeout = read_count(said.parameters, "timeout")
    return min(deadline, time.monotonic() + timeout / 1e6) if timeout else deadline
