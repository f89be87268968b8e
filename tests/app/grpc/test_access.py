"""Tests of the keys that each method needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.keys import Group
from app.protocol.grpc.schema import SERVICE, methods
from tests.app.grpc.raw import call, channel, refused, request, tensor
from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import listening

KEYS = {group: f"key-for-{group}-0123456789" for group in Group}
ALL = "; ".join(f"{group}: {key}" for group, key in KEYS.items())
TRACE = pb.TraceSettingRequest()
TRACE.settings["trace_rate"].value.append("5")
LOG = pb.LogSettingsRequest()
LOG.settings["log_info"].bool_param = True
NEEDS = {
    "ModelInfer": (Group.INFER, request("one", [bytes(12)], inputs=[tensor("in0", "FP32", (1, 3))])),
    "ModelStreamInfer": (Group.INFER, b""),
    "ServerMetadata": (Group.METADATA, b""),
    "ModelReady": (Group.METADATA, pb.ModelReadyRequest(name="one")),
    "ModelMetadata": (Group.METADATA, pb.ModelMetadataRequest(name="one")),
    "ModelConfig": (Group.METADATA, pb.ModelConfigRequest(name="one")),
    "ModelStatistics": (Group.METADATA, b""),
    "RepositoryIndex": (Group.METADATA, b""),
    "RepositoryModelLoad": (Group.ADMIN, pb.RepositoryModelLoadRequest(model_name="nope")),
    "RepositoryModelUnload": (Group.ADMIN, pb.RepositoryModelUnloadRequest(model_name="nope")),
    "SystemSharedMemoryStatus": (Group.METADATA, b""),
    "SystemSharedMemoryRegister": (Group.ADMIN, b""),
    "SystemSharedMemoryUnregister": (Group.ADMIN, b""),
    "CudaSharedMemoryStatus": (Group.METADATA, b""),
    "CudaSharedMemoryRegister": (Group.ADMIN, b""),
    "CudaSharedMemoryUnregister": (Group.ADMIN, b""),
    "TraceSetting": (Group.ADMIN, TRACE),
    "LogSettings": (Group.ADMIN, LOG),
}
OPEN = {"ServerLive", "ServerReady"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("access")
    write_model(store, "one", elementwise("add(@0,1)", "(?,3)f32"))
    return store


@pytest.fixture(scope="module")
def locked(store: Path) -> Iterator[grpc.Channel]:
    with listening(store, grpc_port=0, keys=ALL) as front, channel(front) as made:
        yield made


def code(made: grpc.Channel, method: str, message: object, *metadata: tuple[str, str]) -> str:
    data = message if isinstance(message, bytes) else message.SerializeToString()  # type: ignore[attr-defined]
    try:
        call(made, method, data, metadata=metadata)
    except grpc.RpcError as exc:
        return exc.code().name  # type: ignore[attr-defined]  # an error of a call is a call
    return "OK"


def test_every_method_is_looked_at() -> None:
    assert set(NEEDS) | OPEN == set(methods(SERVICE))


@pytest.mark.parametrize("method", NEEDS)
def test_a_method_needs_a_key_of_its_group(locked: grpc.Channel, method: str) -> None:
    group, message = NEEDS[method]
    assert code(locked, method, message) == "UNAUTHENTICATED"
    assert code(locked, method, message, ("x-api-key", "no-such-key-0123456789")) == "UNAUTHENTICATED"
    others = {code(locked, method, message, ("x-api-key", key)) for each, key in KEYS.items() if each is not group}
    assert others == {"PERMISSION_DENIED"}
    for metadata in (("x-api-key", KEYS[group]), ("authorization", f"Bearer {KEYS[group]}")):
        assert code(locked, method, message, metadata) not in ("UNAUTHENTICATED", "PERMISSION_DENIED")


def test_health_is_told_to_everybody_but_that_of_models(locked: grpc.Channel) -> None:
    for method in OPEN:
        assert code(locked, method, b"") == "OK"
    check = "/grpc.health.v1.Health/Check"
    assert call(locked, check, b"") == b"\x08\x01"
    assert refused(locked, check, b"\x0a\x03one")[0] == "UNAUTHENTICATED"
    assert code(locked, check, b"\x0a\x03one", ("x-api-key", KEYS[Group.METADATA])) == "OK"


@pytest.mark.parametrize("method", ["TraceSetting", "LogSettings"])
def test_settings_are_shown_to_who_may_see_what_is_served(locked: grpc.Channel, method: str) -> None:
    assert code(locked, method, b"", ("x-api-key", KEYS[Group.METADATA])) == "OK"
    assert code(locked, method, b"", ("x-api-key", KEYS[Group.ADMIN])) == "PERMISSION_DENIED"


def test_no_refusal_repeats_a_key(locked: grpc.Channel) -> None:
    secret = "a-secret-never-to-repeat-0123456789"
    for metadata in (
        ("x-api-key", secret),
        ("authorization", f"Bearer {secret}"),
        ("authorization", f"Basic {secret}"),
    ):
        assert secret not in refused(locked, "ServerMetadata", b"", metadata=(metadata,))[1]


def test_without_keys_the_server_is_changed_from_the_machine_itself_only(store: Path) -> None:
    with listening(store, grpc_port=0) as front, channel(front) as made:
        assert code(made, "TraceSetting", TRACE) == "OK"
        assert code(made, "TraceSetting", TRACE, ("origin", "http://page.example")) == "PERMISSION_DENIED"
