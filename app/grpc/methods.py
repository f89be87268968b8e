"""Methods of the protocol except inference, one row each; their answers are the same JSON as over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from app.errors import ModelNotReadyError, NotFoundError
from app.grpc.call import Call
from app.keys import Group
from app.protocol.grpc.schema import parse, read_choice, read_lists, read_parameters, write_choices, write_lists
from app.protocol.v2 import operations
from app.protocol.v2.operations import Operation, Question
from app.protocol.v2.runtime_settings import RuntimeSettings
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import DataPlane

_MAX_BYTES: Final = 1 << 20

Document = Mapping[str, Any]
Check = Callable[[Call, Group], None]


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
