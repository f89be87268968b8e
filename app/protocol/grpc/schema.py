"""Classes of the protocol's messages.

They are made from descriptors.binpb, which ``make descriptors`` makes of the two .proto files, and which any release of
protobuf reads. They live in a pool of their own: a process may hold other files that define the package ``inference``,
those of a client for example, and the pool that all share takes each name once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from app.errors import RefusedError

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"


def _pool() -> Any:
    pool = DescriptorPool()
    files = FileDescriptorSet.FromString((Path(__file__).parent / "descriptors.binpb").read_bytes())
    for file in files.file:
        pool.Add(file)
    return pool


POOL: Final = _pool()


def message_class(name: str) -> Any:
    """A message's class, ``ModelInferRequest`` for example."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


def methods(service: str) -> dict[str, tuple[Any, Any]]:
    """The classes of what each method of a service takes and gives."""
    return {
        method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        for method in POOL.FindServiceByName(service).methods
    }


def parse(cls: Any, data: bytes | memoryview) -> Any:
    """A message from its bytes.

    Raises:
        RefusedError: they are none.
    """
    try:
        return cls.FromString(bytes(data))
    except DecodeError:
        raise RefusedError(f"the message is no {cls.DESCRIPTOR.name}: {len(data)} bytes that cannot be read") from None


def read_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A map of parameters as values; one that is not set is None."""
    return {key: read_choice(value) for key, value in parameters.items()}


def read_choice(value: Any) -> Any:
    """The one that is set of a message with a choice of kinds."""
    kind = value.WhichOneof("parameter_choice")
    return None if kind is None else getattr(value, kind)


def read_lists(settings: Mapping[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    """A map of settings, each a list of texts: None where it is empty, one text where not a list belongs there.

    Args:
        lists: settings as they are; of these the kind is looked at.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        texts = list(value.value)
        is_list = isinstance(lists.get(key), list)
        found[key] = None if not texts else texts if is_list or len(texts) > 1 else texts[0]
    return found


def write_lists(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as such a map."""
    return {key: {"value": value if isinstance(value, list) else [str(value)]} for key, value in settings.items()}


def write_choices(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a map of messages with a choice of kinds."""
    return {key: {_kind(value): value} for key, value in settings.items()}


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool_param"
    return "uint32_param" if isinstance(value, int) else "string_param"
