"""Conversion of a request to a run of its model, and its deadline."""

from __future__ import annotations

import time

from app.models.model import Model
from app.models.request import LIGHT_BYTES, PLAIN_BYTES, InferRequest
from app.protocol.v2.inputs import Decoder
from app.protocol.v2.outputs import Plan, plan_outputs
from app.protocol.v2.ports import wire_ports
from app.protocol.v2.request import RequestedOutput, V2Request, read_count
from app.protocol.v2.shared_memory import MemoryRegions
from app.scheduling.job import DEFAULT_PRIORITY
from app.settings import Settings


def prepare(
    request: V2Request,
    model: Model,
    settings: Settings,
    regions: MemoryRegions | None = None,
    *,
    size: int | None = None,
) -> tuple[Plan, InferRequest]:
    """Return the outputs of the answer, and the run that computes them.

    Args:
        request: the parsed request.
        model: the model that runs.
        settings: limits.
        regions: shared-memory regions, or None.
        size: bytes of the request; None if they do not matter.

    Raises:
        RefusedError: an output does not exist, or not in the requested form.
    """
    ports = wire_ports(model)
    plan = plan_outputs(request, ports, model.name, regions)
    decoder = Decoder(model.name, ports, model.signature, settings, regions)
    return plan, InferRequest(
        decode=lambda _: decoder.decode(request),
        outputs=plan.names,
        predict=False,
        parameters={},
        is_light=size is not None and size <= _light_bytes(request),
        is_binary=all(_is_binary(request, wanted) for _, _, wanted in plan.rows),
        priority=read_count(request.parameters, "priority") or DEFAULT_PRIORITY,
    )


def _light_bytes(request: V2Request) -> int:
    """Return up to how many bytes a request's tensors are decoded on the event loop; 0 with shared memory."""
    inputs = request.inputs or ()
    if any(each.region_slice is not None for each in inputs) or any(
        each.region_slice is not None for each in request.outputs or ()
    ):
        return 0
    is_plain = all(each.size is not None or isinstance(each.data, memoryview) for each in inputs)
    return PLAIN_BYTES if is_plain else LIGHT_BYTES


def _is_binary(request: V2Request, wanted: RequestedOutput) -> bool:
    is_asked = request.is_binary if wanted.binary is None else wanted.binary
    return is_asked and wanted.classes is None


def request_deadline(deadline: float, request: V2Request) -> float:
    """Return the request's own ``timeout`` (microseconds) as a deadline if that is sooner.

    Raises:
        RefusedError: it is not a whole number.
    """
    timeout = read_count(request.parameters, "timeout")
    return min(deadline, time.monotonic() + timeout / 1e6) if timeout else deadline
