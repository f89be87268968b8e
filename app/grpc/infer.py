"""ModelInfer, and ModelStreamInfer, which answers one message after the other."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from app.codec.message import read_version
from app.errors import InternalError, ServiceError
from app.grpc.call import Call, details_of
from app.memory.reservation import Reservation
from app.models.statistics import Account, account
from app.protocol.grpc.infer import read_infer, read_names, write_answer
from app.protocol.grpc.schema import message_class
from app.protocol.grpc.wire import Piece, field
from app.protocol.v2.inference import prepare, request_deadline
from app.protocol.v2.operations import cache_ports, find
from app.protocol.v2.runtime_settings import RuntimeSettings
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import Answer, DataPlane

log = logging.getLogger(__name__)

# Smaller messages are parsed on the event loop, since a thread would cost more.
_INLINE: Final = 1 << 16
_STREAMED: Final = message_class("ModelStreamInferResponse")
_INFER_RESPONSE: Final = 2


class Inference:
    """Implementation of both methods.

    Args:
        plane: the models.
        runtime_settings: settings that say which requests are traced.
        regions: shared-memory regions, or None.
    """

    def __init__(self, plane: DataPlane, runtime_settings: RuntimeSettings, regions: MemoryRegions | None) -> None:
        self._plane = plane
        self._runtime_settings = runtime_settings
        self._regions = regions

    async def one(self, call: Call) -> bytes:
        """Answer a ModelInfer call."""
        data = await call.read_one(self._plane.settings.max_body_bytes)
        reservation = self._plane.memory.open()
        try:
            answer = await self._run(call, data, reservation)
        except BaseException:
            reservation.close()
            raise
        self._until_sent(call, reservation, len(answer))
        return answer

    async def stream(self, call: Call) -> bytes:
        """Answer a ModelStreamInfer call. Errors of a message are sent in its answer, and the stream continues."""
        while (data := await call.read(self._plane.settings.max_body_bytes, None)) is not None:
            reservation = self._plane.memory.open()
            account.set(Account(call.id))
            try:
                try:
                    answer = await self._run(call, data, reservation, streamed=True)
                except ServiceError as error:
                    answer = _failed(data, error)
                except Exception:
                    log.exception("a message of a stream failed")
                    answer = _failed(data, InternalError(f"internal error; see the server's log, request id {call.id}"))
                del data
                call.sent += len(answer)
                async with asyncio.timeout(self._plane.settings.answer_timeout_s):
                    await call.context.write(answer)
            finally:
                reservation.close()
        return b""

    def _until_sent(self, call: Call, reservation: Reservation, size: int) -> None:
        """Keep the request's memory until its answer is sent; cancel the call if its client is too slow."""
        task = asyncio.current_task()
        timer = None
        if size > _INLINE and task is not None:
            timer = asyncio.get_running_loop().call_later(self._plane.settings.answer_timeout_s, task.cancel)

        def sent(_: Any) -> None:
            if timer is not None:
                timer.cancel()
            reservation.close()

        call.context.add_done_callback(sent)

    async def _run(self, call: Call, data: bytes, reservation: Reservation, *, streamed: bool = False) -> bytes:
        """Return the bytes of an answer."""
        plane = self._plane
        deadline = call.deadline(plane.deadline())
        with reservation:
            reservation.charge(len(data), arriving=True)
            reservation.arrived()
            work = partial(read_infer, data)
            message = work() if len(data) <= _INLINE else await plane.offload(work, deadline)
            size = len(data)
            del data, work
            _, version, model = find(plane.store, message.model, read_version(message.version))
            await cache_ports(plane, model, deadline)
            plan, run = prepare(message.request, model, plane.settings, self._regions, size=size)

            def write(answer: Answer) -> bytes:
                self._runtime_settings.trace.record(
                    answer.model, answer.version, message.request.id, answer.result.timing
                )
                served = answer.model, answer.version
                pieces = write_answer(message, plan, answer.result.outputs, model.labels, served)
                return _joined(pieces, streamed)

            deadline = request_deadline(deadline, message.request)
            answer = plane.answer_now(version, run, write, deadline)
            return await plane.infer_version(version, run, write, deadline) if answer is None else answer


def _joined(pieces: list[Piece], streamed: bool) -> bytes:
    return b"".join(field(_INFER_RESPONSE, pieces) if streamed else pieces)


def _failed(data: bytes, error: ServiceError) -> bytes:
    """Return the answer to a message that failed, with its model and id if they can be read."""
    model, request = read_names(data)
    answer = _STREAMED(error_message=details_of(error), infer_response={"model_name": model, "id": request})
    return bytes(answer.SerializeToString())
