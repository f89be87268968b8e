"""Methods of the protocol except inference, one row each; their answers are the same JSON as over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from app.codec.message import read_version
from app.errors import ModelNotReadyError, NotFoundError, RefusedError
from app.grpc.call import Call
from app.keys import Group
from app.messages import cut
from app.models.model import Model
from app.models.registry.version import Entry, Version
from app.protocol.grpc.schema import parse, read_choice, read_lists, read_parameters, write_choices, write_lists
from app.protocol.v2 import lookup
from app.protocol.v2.metadata import (
    check_unload,
    model_config,
    model_metadata,
    read_load,
    repository_index,
    server_metadata,
)
from app.protocol.v2.ports import has_wire_ports, wire_ports
from app.protocol.v2.runtime_settings import RuntimeSettings, change_logging, change_trace
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import DataPlane

_MAX_BYTES: Final = 1 << 20
# One method reads and changes settings: its message decides which right is needed.
_SETTINGS: Final = (Group.METADATA, Group.ADMIN)

Document = Mapping[str, Any]
Check = Callable[[Call, Group], None]
Method = Callable[[Call, Any], Awaitable[Document]]


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
        # Groups that may call a method, and its implementation.
        self.rows: dict[str, tuple[tuple[Group, ...], Method]] = {
            "ServerLive": ((), self._live),
            "ServerReady": ((), self._ready),
            "ServerMetadata": ((Group.METADATA,), self._server),
            "ModelReady": ((Group.METADATA,), self._model_ready),
            "ModelMetadata": ((Group.METADATA,), self._model),
            "ModelConfig": ((Group.METADATA,), self._config),
            "ModelStatistics": ((Group.METADATA,), self._statistics),
            "RepositoryIndex": ((Group.METADATA,), self._index),
            "RepositoryModelLoad": ((Group.ADMIN,), self._load),
            "RepositoryModelUnload": ((Group.ADMIN,), self._unload),
            "SystemSharedMemoryStatus": ((Group.METADATA,), self._show_regions),
            "SystemSharedMemoryRegister": ((Group.ADMIN,), self._register),
            "SystemSharedMemoryUnregister": ((Group.ADMIN,), self._unregister),
            "CudaSharedMemoryStatus": ((Group.METADATA,), self._devices),
            "CudaSharedMemoryRegister": ((Group.ADMIN,), self._register_device),
            "CudaSharedMemoryUnregister": ((Group.ADMIN,), self._unregister_device),
            "TraceSetting": (_SETTINGS, self._trace),
            "LogSettings": (_SETTINGS, self._logging),
        }

    def answer(self, name: str, classes: tuple[Any, Any]) -> Callable[[Call], Awaitable[bytes]]:
        """Return the function that answers calls of a method."""
        return partial(self._answer, self.rows[name][1], *classes)

    async def _answer(self, method: Method, taken: Any, given: Any, call: Call) -> bytes:
        document = await method(call, parse(taken, await call.read_one(_MAX_BYTES)))
        # Keys of the JSON without a field in the message are dropped.
        return bytes(ParseDict(document, given(), ignore_unknown_fields=True).SerializeToString())

    async def _live(self, _: Call, __: Any) -> Document:
        return {"live": True}

    async def _ready(self, _: Call, __: Any) -> Document:
        return {"ready": self._plane.unready_reason() is None}

    async def _server(self, _: Call, __: Any) -> Document:
        return server_metadata(has_memory=self._regions is not None)

    async def _model_ready(self, _: Call, asked: Any) -> Document:
        """Return whether the model can run; an unknown model is not ready, as clients expect."""
        try:
            lookup.find(self._plane.store, asked.name, read_version(asked.version or None))
        except (ModelNotReadyError, NotFoundError):
            return {"ready": False}
        return {"ready": True}

    async def _model(self, call: Call, asked: Any) -> Document:
        entry, _, model = await self._find(call, asked)
        return model_metadata(entry, model)

    async def _config(self, call: Call, asked: Any) -> Document:
        return {"config": model_config(*await self._find(call, asked))}

    async def _find(self, call: Call, asked: Any) -> tuple[Entry, Version, Model]:
        entry, version, model = lookup.find(self._plane.store, asked.name, read_version(asked.version or None))
        if not has_wire_ports(model):  # not on the event loop, since it may run the model
            await self._plane.offload(partial(wire_ports, model), call.deadline(self._plane.deadline()))
        return entry, version, model

    async def _statistics(self, _: Call, asked: Any) -> Document:
        rows = lookup.statistics(self._plane.store, asked.name or None, read_version(asked.version or None))
        return {"model_stats": list(rows)}

    async def _index(self, _: Call, asked: Any) -> Document:
        await self._plane.control.discover()
        return {"models": repository_index(self._plane.store, only_ready=asked.ready)}

    async def _load(self, _: Call, asked: Any) -> Document:
        """Load a model from the store, beside the version that is served."""
        config = read_load({"parameters": read_parameters(asked.parameters)})
        await self._plane.control.load(asked.model_name, config)
        return {}

    async def _unload(self, _: Call, asked: Any) -> Document:
        """Stop serving a model."""
        check_unload({"parameters": read_parameters(asked.parameters)})
        await self._plane.control.unload(asked.model_name)
        return {}

    async def _show_regions(self, _: Call, asked: Any) -> Document:
        rows = (self._regions or MemoryRegions()).show(asked.name or None)
        return {"regions": {row["name"]: row for row in rows}}

    async def _register(self, _: Call, asked: Any) -> Document:
        """Register shared memory for inputs and outputs."""
        if self._regions is None:
            raise RefusedError(
                f"failed to register shared memory region '{cut(asked.name)}': not enabled on this server"
            )
        self._regions.register(asked.name, {"key": asked.key, "offset": asked.offset, "byte_size": asked.byte_size})
        return {}

    async def _unregister(self, _: Call, asked: Any) -> Document:
        if self._regions is not None:
            self._regions.unregister(asked.name or None)
        return {}

    async def _devices(self, _: Call, asked: Any) -> Document:
        """Return no regions, since device memory is not supported."""
        MemoryRegions().show(asked.name or None)
        return {}

    async def _register_device(self, _: Call, asked: Any) -> Document:
        raise RefusedError(f"failed to register CUDA shared memory region: '{cut(asked.name)}', GPUs not supported")

    async def _unregister_device(self, _: Call, __: Any) -> Document:
        """Do nothing; clients call this before they begin."""
        return {}

    async def _trace(self, call: Call, asked: Any) -> Document:
        name = self._plane.store.entry(asked.model_name).name if asked.model_name else None
        trace = self._runtime_settings.trace
        self._check(call, Group.ADMIN if asked.settings else Group.METADATA)
        if asked.settings:
            await change_trace(self._plane.commands, read_lists(asked.settings, trace.show()), name)
        return {"settings": write_lists(trace.show(name))}

    async def _logging(self, call: Call, asked: Any) -> Document:
        logging = self._runtime_settings.logging
        self._check(call, Group.ADMIN if asked.settings else Group.METADATA)
        if asked.settings:
            wanted = {key: read_choice(value) for key, value in asked.settings.items()}
            await change_logging(self._plane.commands, wanted)
        return {"settings": write_choices(logging.show())}
