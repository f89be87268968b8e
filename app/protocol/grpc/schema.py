"""Classes of the protocol's messages, and conversion of their parameters and settings.

The classes are made from descriptors.binpb, which ``make descriptors`` compiles from the .proto files and every
release of protobuf reads. They are in a descriptor pool of their own, since protobuf's default pool accepts a name
only once and the process may also load a client's definitions of the package ``inference``.
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
    """Return the class of a message such as ``ModelInferRequest``."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


def methods(service: str) -> dict[str, tuple[Any, Any]]:
    """Return the request and response classes of each method of a service."""
    return {
        method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        for method in POOL.FindServiceByName(service).methods
    }


def parse(cls: Any, data: bytes | memoryview) -> Any:
    """Parse a message.

    Raises:
        RefusedError: the bytes are not such a message.
    """
    try:
        return cls.FromString(bytes(data))
    except DecodeError:
        raise RefusedError(f"found {len(data)} bytes that cannot be parsed, expected a {cls.DESCRIPTOR.name}") from None


def read_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map of parameters as values; an unset one is None."""
    return {key: read_choice(value) for key, value in parameters.items()}


def read_choice(value: Any) -> Any:
    """Return the value of a message with a oneof, or None."""
    kind = value.WhichOneof("parameter_choice")
    return None if kind is None else getattr(value, kind)


def read_lists(settings: Mapping[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings from a map of lists of texts.

    An empty list is None; a single text is returned alone unless the setting is a list.

    Args:
        settings: map of lists of texts.
        lists: the current settings, of which only the types are used.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        texts = list(value.value)
        is_list = isinstance(lists.get(key), list)
        found[key] = None if not texts else texts if is_list or len(texts) > 1 else texts[0]
    return found


def write_lists(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a map of lists of texts."""
    return {key: {"value": value if isinstance(value, list) else [str(value)]} for key, value in settings.items()}


def write_choices(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a map of messages with a oneof."""
    return {key: {_kind(value): value} for key, value in settings.items()}


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool_param"
    return "uint32_param" if isinstance(value, int) else "string_param"
