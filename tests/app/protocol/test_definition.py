"""Tests of our .proto files against the messages of a third-party client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import model_config_pb2, service_pb2

from app.protocol.grpc import schema
from app.protocol.grpc.schema import POOL, SERVICE, message_class, methods

# Only in the specification, not in that client's files.
OURS_ALONE = {"inference.ModelMetadataResponse.properties"}
THEIRS = {**service_pb2.DESCRIPTOR.message_types_by_name, **model_config_pb2.DESCRIPTOR.message_types_by_name}
OURS = POOL.FindFileByName("inference.proto").message_types_by_name


def fields(message: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Return everything that determines the encoding of a message's fields, recursively."""
    for field in message.fields:
        oneof = field.containing_oneof and field.containing_oneof.name
        kind = field.message_type.full_name if field.type == FieldDescriptor.TYPE_MESSAGE else field.type
        values = {each.name: each.number for each in field.enum_type.values} if field.enum_type else None
        yield field.full_name, (field.number, kind, field.is_repeated, oneof, values)
    for nested in message.nested_types:
        yield from fields(nested)


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_field_has_the_number_and_the_type_that_a_client_knows(name: str) -> None:
    theirs = dict(fields(THEIRS[name]))
    ours = {key: row for key, row in fields(OURS[name]) if not key.startswith(tuple(OURS_ALONE))}
    ours = {key: row for key, row in ours.items() if "PropertiesEntry" not in key}
    assert ours.items() <= theirs.items()


def test_every_message_of_inference_is_whole() -> None:
    """Compare all messages, of which the model configuration is only partly served."""
    for name, message in service_pb2.DESCRIPTOR.message_types_by_name.items():
        assert {key for key, _ in fields(message)} <= {key for key, _ in fields(OURS[name])}


def test_the_service_has_all_methods_of_a_client() -> None:
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert theirs.full_name == SERVICE
    found = {name: tuple(each.DESCRIPTOR.name for each in classes) for name, classes in methods(SERVICE).items()}
    assert found == {each.name: (each.input_type.name, each.output_type.name) for each in theirs.methods}
    streams = [each.name for each in POOL.FindServiceByName(SERVICE).methods if each.client_streaming]
    assert streams == [each.name for each in POOL.FindServiceByName(SERVICE).methods if each.server_streaming]
    assert streams == ["ModelStreamInfer"]


def test_messages_of_a_client_are_understood_byte_by_byte() -> None:
    theirs = service_pb2.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"abc"])
    theirs.parameters["timeout"].int64_param = -(2**63)
    theirs.inputs.add(name="x", datatype="FP64", shape=[2, -1]).contents.fp64_contents.extend([0.5, 1e308])
    ours = message_class("ModelInferRequest").FromString(theirs.SerializeToString())
    assert service_pb2.ModelInferRequest.FromString(ours.SerializeToString()) == theirs


def test_the_descriptors_were_made_from_the_definitions_as_they_are() -> None:
    """Compare the digests that `make descriptors` writes of its inputs and its output."""
    folder = Path(schema.__file__).parent
    lines = [line.split() for line in (folder / "descriptors.sha256").read_text().splitlines()]
    assert {name for _, name in lines} == {"inference.proto", "health.proto", "descriptors.binpb"}
    for digest, name in lines:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_protoc_makes_the_same_descriptors(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="the extra 'descriptors' is not installed")
    folder = Path(schema.__file__).parent
    made = tmp_path / "descriptors.binpb"
    files = ("inference.proto", "health.proto")
    assert protoc.main(["", f"-I{folder}", f"--descriptor_set_out={made}", *files]) == 0
    read = FileDescriptorSet.FromString
    assert read(made.read_bytes()) == read((folder / made.name).read_bytes())
