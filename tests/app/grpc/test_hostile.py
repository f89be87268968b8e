"""Tests of clients that send garbage, too much or nothing, or disconnect."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from tests.app.grpc.raw import SERVICE, call, channel, refused, request, tensor
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.app.sockets import Front, listening
from tests.patience import until

X = np.zeros((1, 2), np.float32)
GOOD = request("one", [bytes(8)], inputs=[tensor("in0", "FP32", (1, 2))])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Start a server with small limits."""
    store = tmp_path_factory.mktemp("hostile")
    write_model(store, "one", elementwise("add(@0,1)", "(?,2)f32"))
    write_model(store, "gate", through("test.Wait", "(?,2)f32"))
    (store / "gate" / "config.toml").write_text("")
    more = {"max_body_bytes": 1 << 20, "max_in_flight": 1, "max_queue": 1, "grpc_max_calls": 8, "warmup": False}
    with listening(store, grpc_port=0, **more) as front:
        yield front


@pytest.fixture
def made(small: Front) -> Iterator[grpc.Channel]:
    with channel(small) as made:
        yield made


def test_the_fixture_s_gate_is_closed(small: Front) -> None:
    assert small.server.plane.unready_reason() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_answered_and_never_our_fault(made: grpc.Channel, data: bytes) -> None:
    for method in ("ModelInfer", "TraceSetting", "ModelConfig", "RepositoryModelLoad"):
        try:
            made.unary_unary(SERVICE + method)(data, timeout=60)
        except grpc.RpcError as exc:
            assert exc.code().name in ("INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE")  # type: ignore[attr-defined]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_good_message_with_a_few_bytes_changed_is_refused_or_answered(
    made: grpc.Channel, data: st.DataObject
) -> None:
    message = bytearray(GOOD.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        made.unary_unary(SERVICE + "ModelInfer")(bytes(message), timeout=60)
    except grpc.RpcError as exc:
        assert exc.code().name in ("INVALID_ARGUMENT", "NOT_FOUND"), exc  # type: ignore[attr-defined]


def test_sizes_of_messages_are_bounded(made: grpc.Channel) -> None:
    sent = request("one", [bytes((1 << 20) + 100)], inputs=[tensor("in0", "FP32", (1, 2))])
    code, said = refused(made, "ModelInfer", sent)
    assert code == "INVALID_ARGUMENT" and "too large" in said and "1048576" in said
    sent = request("one", [bytes(3 << 20)], inputs=[tensor("in0", "FP32", (1, 2))])
    assert refused(made, "ModelInfer", sent)[0] == "RESOURCE_EXHAUSTED"
    packed = request("one", [bytes(50 << 20)], inputs=[tensor("in0", "FP32", (1, 2))])
    assert refused(made, "ModelInfer", packed, compression=grpc.Compression.Gzip)[0] == "RESOURCE_EXHAUSTED"
    assert refused(made, "ModelConfig", pb.ModelConfigRequest(name="a" * (1 << 20)))[0] == "INVALID_ARGUMENT"
    assert call(made, "ModelInfer", GOOD).outputs


@pytest.mark.parametrize("shape", [(2**31 - 1, 2), (2**31 - 1, 2**31 - 1), (2**62, 4), (0, 2), (2**63 - 1,), ()])
def test_shapes_that_their_bytes_do_not_fill_are_refused(made: grpc.Channel, shape: tuple[int, ...]) -> None:
    sent = request("one", [bytes(8)], inputs=[tensor("in0", "FP32", shape)])
    assert refused(made, "ModelInfer", sent)[0] == "INVALID_ARGUMENT"


def test_many_parts_are_refused(made: grpc.Channel) -> None:
    for sent in (
        GOOD.SerializeToString() + b"\x2a\x00" * 70_000,
        GOOD.SerializeToString() + b"\x2a\x00" * 20_000,
        GOOD.SerializeToString() + b"\x3a\x00" * 20_000,
    ):
        assert refused(made, "ModelInfer", sent)[0] == "INVALID_ARGUMENT"


def test_a_call_without_a_message_is_told_so(small: Front) -> None:
    with channel(small) as made:
        answers = made.stream_unary(SERVICE + "ModelInfer")
        with pytest.raises(grpc.RpcError, match="no message"):
            answers(iter(()), timeout=60)


def test_a_client_that_goes_away_frees_its_place_and_so_does_one_whose_time_is_up(small: Front) -> None:
    gate = request("gate", [bytes(8)], inputs=[tensor("in0", "FP32", (1, 2))]).SerializeToString()
    scheduler = small.server.plane.store.entry("gate").versions[-1].scheduler
    with channel(small) as made:
        infer = made.unary_unary(SERVICE + "ModelInfer")
        running = infer.future(gate, timeout=120)
        TURNSTILE.wait_until_entered()
        waiting = infer.future(gate, timeout=120)
        until(lambda: scheduler.queued == 1)
        code, said = refused(made, "ModelInfer", gate)
        assert code == "RESOURCE_EXHAUSTED" and "busy" in said
        with pytest.raises(grpc.RpcError) as full:
            infer(gate, timeout=120)
        assert ("grpc-retry-pushback-ms", "1000") in full.value.trailing_metadata()  # type: ignore[attr-defined]
        waiting.cancel()
        until(lambda: scheduler.queued == 0)
        with pytest.raises(grpc.RpcError) as late:
            infer(gate, timeout=0.2)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
        until(lambda: scheduler.queued == 0)
        TURNSTILE.let_through()
        assert running.result(timeout=120)
    until(lambda: small.server.plane.memory.used == 0)


def test_a_request_s_own_timeout_is_its_deadline(small: Front) -> None:
    gate = request("gate", [bytes(8)], inputs=[tensor("in0", "FP32", (1, 2))])
    gate.parameters["timeout"].int64_param = 50_000
    with channel(small) as made:
        code, said = refused(made, "ModelInfer", gate)
    assert code == "DEADLINE_EXCEEDED" and "gate" in said
    scheduler = small.server.plane.store.entry("gate").versions[-1].scheduler
    TURNSTILE.let_through_until(lambda: scheduler.is_empty and not scheduler.is_busy)


def test_setting_grpc_max_calls_bounds_streams_that_are_abandoned_and_they_leave_room_for_others_and_nothing_behind(
    small: Front,
) -> None:
    done = threading.Event()

    def nothing() -> Iterator[bytes]:
        done.wait(120)
        yield from ()

    handlers = small.server.grpc_server.handlers
    with channel(small) as crowd, channel(small) as made:
        streams = [crowd.stream_stream(SERVICE + "ModelStreamInfer")(nothing()) for _ in range(100)]
        until(lambda: handlers.open == 4)
        assert call(made, "ModelInfer", GOOD).outputs
        codes = {stream.code().name for stream in streams if stream.done()}
        assert codes <= {
            "RESOURCE_EXHAUSTED",
            "UNAVAILABLE",
        }  # by the server, or by gRPC, unreported
        for stream in streams:
            stream.cancel()
    done.set()
    until(lambda: handlers.open == 0 and small.server.plane.memory.used == 0)


def test_a_hundred_that_go_away_in_the_middle_leave_nothing_behind(small: Front) -> None:
    def files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = files()
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", small.server.grpc_port)) as rude:
            rude.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", small.server.grpc_port)) as rude:
            rude.sendall(os.urandom(1000))
    with channel(small) as made:
        calls = [made.unary_unary(SERVICE + "ModelInfer").future(GOOD.SerializeToString()) for _ in range(100)]
    until(lambda: all(each.done() for each in calls))
    until(lambda: small.server.grpc_server.handlers.open == 0 and small.server.plane.memory.used == 0)
    until(lambda: files() <= before + 10)
    with channel(small) as made:
        assert call(made, "ModelInfer", GOOD).outputs


def test_an_error_in_a_stream_does_not_end_it(small: Front) -> None:
    bad = [b"\xff\xff", request("nope").SerializeToString(), request("one", id="5").SerializeToString()]
    with channel(small) as made:
        sent = iter([*bad, GOOD.SerializeToString()])
        answers = [
            pb.ModelStreamInferResponse.FromString(each)
            for each in made.stream_stream(SERVICE + "ModelStreamInfer")(sent, timeout=60)
        ]
    assert [bool(each.error_message) for each in answers] == [True, True, True, False]
    assert answers[2].infer_response.id == "5"
    assert answers[3].infer_response.outputs[0].name == "out0"


def test_memory_that_there_is_not_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with listening(tmp_path, grpc_port=0, max_bytes_in_flight=100_000) as front, channel(front) as made:
        assert call(made, "ModelInfer", GOOD).outputs
        large = request("one", [bytes(80_000)], inputs=[tensor("in0", "FP32", (10_000, 2))])
        code, said = refused(made, "ModelInfer", large)
        assert code == "INVALID_ARGUMENT" and "too much memory" in said
        numbers = tensor("in0", "FP32", (10_000, 2), fp32_contents=[1.0] * 20_000)
        assert refused(made, "ModelInfer", request("one", inputs=[numbers]))[0] == "INVALID_ARGUMENT"
        until(lambda: front.server.plane.memory.used == 0)


def test_a_model_that_is_not_there_yet_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.pnnx.param").write_text("no such magic")
    with listening(tmp_path, grpc_port=0) as front, channel(front) as made:
        sent = request("broken", [bytes(8)], inputs=[tensor("in0", "FP32", (1, 2))])
        assert refused(made, "ModelInfer", sent)[0] == "UNAVAILABLE"
        assert not call(made, "ModelReady", pb.ModelReadyRequest(name="broken")).ready
        assert not call(made, "ServerReady", b"").ready and call(made, "ServerLive", b"").live
        assert call(made, "/grpc.health.v1.Health/Check", b"") == b"\x08\x02"
        client = triton.InferenceServerClient(f"127.0.0.1:{front.server.grpc_port}")
        with client, pytest.raises(InferenceServerException, match="failed to load"):
            client.get_model_metadata("broken")
