"""Methods of the protocol: inference, and one row for each other method, whose answer is the same JSON as over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from app.codec.message import read_version
from app.errors import InternalError, ModelNotReadyError, NotFoundError, ServiceError
from app.grpc.call import Call, details_of
from app.keys import Group, client_of
from app.memory.reservation import Reservation
from app.models.statistics import Account, account
from app.protocol.grpc.infer import Piece, field, read_infer, read_names, write_answer
from app.protocol.grpc.schema import (
    message_class,
    parse,
    read_choice,
    read_lists,
    read_parameters,
    write_choices,
    write_lists,
)
from app.protocol.v2 import operations
from app.protocol.v2.inputs import prepare, request_deadline
from app.protocol.v2.operations import Operation, Question, cache_ports, find
from app.protocol.v2.runtime_settings import RuntimeSettings
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import Answer, DataPlane

_MAX_BYTES: Final = 1 << 20

Document = Mapping[str, Any]
Check = Callable[[Call, Group], None]
log = logging.getLogger(__name__)
# Smaller messages are parsed on the event loop, since a thread would cost more.
_INLINE: Final = 1 << 16
_STREAMED: Final = message_class("ModelStreamInferResponse")
_INFER_RESPONSE: Final = 2


@dataclass(frozen=True, slots=True)
class _Row:
    """Method of the service.

    Args:
        groups: groups that may call it.
        operation: what it does.
        document: returns the message as the JSON that HTTP has.
        answer: returns the operation's result in the form of the answer's message.
    """

    groups: tuple[Group, ...]
    operation: Operation
    document: Callable[[Any], Document] = lambda _: {}
    answer: Callable[[Any], Document] = lambda found: found or {}


async def _server_ready(asked: Question) -> Document:
    return {"ready": asked.plane.unready_reason() is None}


async def _model_ready(asked: Question) -> Document:
    """Return whether the model can run; an unknown model is not ready, as clients expect."""
    try:
        return {"ready": (await operations.model_ready(asked))["ready"]}
    except (ModelNotReadyError, NotFoundError):
        return {"ready": False}


def _parameters(asked: Any) -> Document:
    return {"parameters": read_parameters(asked.parameters)}


def _region(asked: Any) -> Document:
    return {"key": asked.key, "offset": asked.offset, "byte_size": asked.byte_size}


def _regions(rows: Any) -> Document:
    return {"regions": {row["name"]: row for row in rows}}


_METADATA, _ADMIN = (Group.METADATA,), (Group.ADMIN,)
_ROWS: Final = {
    "ServerLive": _Row((), operations.live),
    "ServerReady": _Row((), _server_ready),
    "ServerMetadata": _Row(_METADATA, operations.server),
    "ModelReady": _Row(_METADATA, _model_ready),
    "ModelMetadata": _Row(_METADATA, operations.model),
    "ModelConfig": _Row(_METADATA, operations.config, answer=lambda found: {"config": found}),
    "ModelStatistics": _Row(_METADATA, operations.model_statistics),
    "RepositoryIndex": _Row(
        _METADATA, operations.index, lambda asked: {"ready": asked.ready}, lambda rows: {"models": rows}
    ),
    "RepositoryModelLoad": _Row(_ADMIN, operations.load, _parameters),
    "RepositoryModelUnload": _Row(_ADMIN, operations.unload, _parameters),
    "SystemSharedMemoryStatus": _Row(_METADATA, operations.memory_status, answer=_regions),
    "SystemSharedMemoryRegister": _Row(_ADMIN, operations.register_memory, _region),
    "SystemSharedMemoryUnregister": _Row(_ADMIN, operations.unregister_memory),
    "CudaSharedMemoryStatus": _Row(_METADATA, operations.device_status, answer=_regions),
    "CudaSharedMemoryRegister": _Row(_ADMIN, operations.register_device),
    "CudaSharedMemoryUnregister": _Row(_ADMIN, operations.unregister_device),
}
# One method reads and changes settings: its message decides which right is needed.
_SETTINGS: Final = {"TraceSetting": (*_METADATA, *_ADMIN), "LogSettings": (*_METADATA, *_ADMIN)}


class Methods:
    """Methods of one server.

    Args:
        plane: the models.
        runtime_settings: settings that clients may change.
        regions: shared-memory regions, or None.
        check: raises if a call lacks a right; for methods whose message decides which right is needed.
    """

    def __init__(
        self, plane: DataPlane, runtime_settings: RuntimeSettings, regions: MemoryRegions | None, check: Check
    ) -> None:
        self._plane = plane
        self._runtime_settings = runtime_settings
        self._regions = regions
        self._check = check
        # Groups that may call a method.
        self.rows = {name: row.groups for name, row in _ROWS.items()} | _SETTINGS

    def answer(self, name: str, classes: tuple[Any, Any]) -> Callable[[Call], Awaitable[bytes]]:
        """Return the function that answers calls of a method."""
        return partial(self._answer, name, *classes)

    async def _answer(self, name: str, taken: Any, given: Any, call: Call) -> bytes:
        asked = parse(taken, await call.read_one(_MAX_BYTES))
        row = _ROWS[name] if name in _ROWS else self._settings_row(name, call, asked)
        question = Question(
            plane=self._plane,
            runtime_settings=self._runtime_settings,
            regions=self._regions,
            name=getattr(asked, "name", "") or getattr(asked, "model_name", "") or None,
            version=getattr(asked, "version", "") or None,
            document=row.document(asked),
            deadline=call.deadline(self._plane.deadline()),
        )
        document = row.answer(await row.operation(question))
        # Keys of the JSON without a field in the message are dropped.
        return bytes(ParseDict(document, given(), ignore_unknown_fields=True).SerializeToString())

    def _settings_row(self, name: str, call: Call, asked: Any) -> _Row:
        """Return the row that reads settings, or the one that changes them."""
        group = Group.ADMIN if asked.settings else Group.METADATA
        if name == "LogSettings":
            operation = operations.set_logging if asked.settings else operations.show_logging
            wanted = {key: read_choice(value) for key, value in asked.settings.items()}
            row = _Row((group,), operation, lambda _: wanted, lambda found: {"settings": write_choices(found)})
        else:
            operation = operations.set_trace if asked.settings else operations.show_trace
            wanted = read_lists(asked.settings, self._runtime_settings.trace.show())
            row = _Row((group,), operation, lambda _: wanted, lambda found: {"settings": write_lists(found)})
        self._check(call, group)
        return row


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
            client = client_of(call.key)
            plan, run = prepare(message.request, model, plane.settings, self._regions, client=client, size=size)

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
