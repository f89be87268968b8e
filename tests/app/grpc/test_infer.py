"""Tests of ModelInfer: every form of a tensor, and every refusal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.models.runs import Runs
from tests.app.grpc.raw import call, channel, refused, request, tensor
from tests.app.http.v2.messages import NUMPY
from tests.app.http.v2.test_infer import values_of
from tests.app.pictures import png
from tests.app.sockets import Front
from tests.app.v2_models import DATATYPES

X = np.arange(16, dtype=np.float32)[None]
FIELDS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip
ONE = tensor("INPUT0", "FP32", (1, 16))


@pytest.fixture
def made(front: Front) -> Iterator[grpc.Channel]:
    with channel(front) as made:
        yield made


def received(answer: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the outputs of an answer with raw bytes."""
    assert len(answer.outputs) == len(answer.raw_output_contents)
    assert not any(each.HasField("contents") for each in answer.outputs)
    rows = zip(answer.outputs, answer.raw_output_contents, strict=True)
    return {row.name: np.frombuffer(data, NUMPY[row.datatype]).reshape(row.shape) for row, data in rows}


@pytest.mark.parametrize(("code", "datatype"), DATATYPES.items())
def test_a_tensor_of_every_datatype_goes_there_and_back_as_bytes(made: grpc.Channel, code: str, datatype: str) -> None:
    sent = values_of(datatype)
    answer = call(
        made, "ModelInfer", request(f"copy_{code}", [sent.tobytes()], inputs=[tensor("in0", datatype, (1, 3))])
    )
    np.testing.assert_array_equal(received(answer)["out0"], sent, strict=True)


@pytest.mark.parametrize(("code", "datatype"), [(code, name) for code, name in DATATYPES.items() if name in FIELDS])
def test_numbers_are_answered_with_numbers(made: grpc.Channel, code: str, datatype: str) -> None:
    sent = values_of(datatype)
    row = tensor("in0", datatype, (1, 3), **{FIELDS[datatype]: sent.ravel().tolist()})
    answer = call(made, "ModelInfer", request(f"copy_{code}", inputs=[row]))
    assert not answer.raw_output_contents
    values = getattr(answer.outputs[0].contents, FIELDS[datatype])
    np.testing.assert_array_equal(np.array(values, NUMPY[datatype]).reshape(1, 3), sent, strict=True)


def test_short_calls_of_a_quick_model_are_run_without_a_thread(
    made: grpc.Channel, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    run = Runs.run

    def told(self: Runs, *args: Any) -> Any:
        found.append(threading.current_thread().name)
        return run(self, *args)

    monkeypatch.setattr(Runs, "run", told)
    model = front.server.plane.store.version("simple").model
    assert model is not None
    monkeypatch.setattr(model, "is_quick", lambda _: True)
    monkeypatch.setattr(model.batcher, "is_known", lambda *_: True)
    answer = call(made, "ModelInfer", request("simple", [X.tobytes()], inputs=[ONE]))
    assert len(received(answer)) == 1 and len(found) == 1 and not found[0].startswith("scheduler-")


def test_what_numbers_do_not_fit_their_datatype_is_told(made: grpc.Channel) -> None:
    for datatype, field, value, said in (
        ("INT8", "int_contents", 300, "found a value in int_contents that is out of range, expected INT8"),
        ("UINT8", "uint_contents", 256, "found a value in uint_contents that is out of range, expected UINT8"),
        ("INT8", "fp32_contents", 1, "found fp32_contents for datatype 'INT8', expected only int_contents"),
        ("FP16", "fp32_contents", 1, "expected its bytes in raw_input_contents"),
        ("FP33", "fp32_contents", 1, "found fp32_contents for datatype 'FP33'"),
    ):
        row = tensor("in0", datatype, (1, 3), **{field: [value] * 3})
        code, text = refused(made, "ModelInfer", request("copy_i8", inputs=[row]))
        assert code == "INVALID_ARGUMENT" and said in text
    row = tensor("in0", "INT8", (1, 3), int_contents=[1])
    assert "expecting 3 bytes, got 1" in refused(made, "ModelInfer", request("copy_i8", inputs=[row]))[1]


def test_several_inputs_each_have_their_own_bytes(made: grpc.Channel) -> None:
    rows = [tensor(name, "FP32", (1, 2)) for name in ("in1", "in0")]
    raw = [np.float32([[1, 2]]).tobytes(), np.float32([[10, 20]]).tobytes()]
    answer = call(made, "ModelInfer", request("add", raw, inputs=rows))
    np.testing.assert_array_equal(received(answer)["out0"], np.float32([[11, 22]]))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_pictures_are_elements_of_bytes(made: grpc.Channel, count: int, as_bytes: bool) -> None:
    picture = png(2, 2)
    if as_bytes:
        raw = [(len(picture).to_bytes(4, "little") + picture) * count]
        sent = request("shades", raw, inputs=[tensor("in0", "BYTES", (count,))])
    else:
        row = tensor("in0", "BYTES", (count,), bytes_contents=[picture] * count)
        sent = request("shades", inputs=[row])
    answer = call(made, "ModelInfer", sent)
    scores = answer.outputs[0]
    assert list(scores.shape) == [count, 3]
    assert bool(answer.raw_output_contents) == as_bytes
    assert len(scores.contents.fp32_contents) == (0 if as_bytes else 3 * count)


def test_classification_id_and_parameters_are_those_of_the_protocol(made: grpc.Channel) -> None:
    sent = request("simple", [X.tobytes()], inputs=[ONE], id="42", model_version="1")
    sent.parameters["timeout"].int64_param = 50_000_000
    sent.parameters["priority"].uint64_param = 2
    sent.parameters["mine"].double_param = 0.5
    wanted = sent.outputs.add(name="OUTPUT0")
    wanted.parameters["classification"].int64_param = 2
    answer = call(made, "ModelInfer", sent)
    assert (answer.id, answer.model_name, answer.model_version) == ("42", "simple", "1")
    (row,) = answer.outputs
    assert (row.name, row.datatype, list(row.shape)) == ("OUTPUT0", "BYTES", [1, 2])
    assert b"16.000000:15:label15" in answer.raw_output_contents[0]


wanted = pb.ModelInferRequest.InferRequestedOutputTensor


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (request("nope", [X.tobytes()], inputs=[ONE]), "NOT_FOUND", "nope"),
        (request("simple", [X.tobytes()], inputs=[ONE], model_version="9"), "NOT_FOUND", "no version 9"),
        (request("simple", [X.tobytes()], inputs=[ONE], model_version="-1"), "INVALID_ARGUMENT", "version"),
        (request("simple"), "INVALID_ARGUMENT", "has no 'inputs'"),
        (request("simple", [b"", b""], inputs=[ONE]), "INVALID_ARGUMENT", "expected 1 raw_input_contents"),
        (request("add", [b""], inputs=[tensor("in0", "FP32", (1, 2)), tensor("in1", "FP32", (1, 2))]),
         "INVALID_ARGUMENT", "expected 2 raw_input_contents"),
        (request("simple", [X.tobytes()[:-1]], inputs=[ONE]), "INVALID_ARGUMENT", "expecting 64 bytes, got 63"),
        (request("simple", [X.tobytes()], inputs=[tensor("INPUT0", "FP32", (1, 16), fp32_contents=[1])]),
         "INVALID_ARGUMENT", "contents field must not be specified when using raw_input_contents"),
        (request("simple", [X.tobytes()], inputs=[tensor("INPUT0", "FP32", (-1, 16))]), "INVALID_ARGUMENT", "shape"),
        (request("simple", [X.tobytes()], inputs=[tensor("INPUT0", "FP32", (2**31 - 1, 16))]),
         "INVALID_ARGUMENT", "too many elements"),
        (request("simple", [X.tobytes()], inputs=[tensor("INPUT0", "FP32", (2**63 - 1, 16))]),
         "INVALID_ARGUMENT", "too many elements"),
        (request("simple", [X.tobytes()], inputs=[tensor("INPUT0", "FP32", (1,) * 5000)]),
         "INVALID_ARGUMENT", "shape"),
        (request("simple", [X.tobytes()], inputs=[tensor("INPUT0", "FP32\u2028", (1, 16))]),
         "INVALID_ARGUMENT", "unknown datatype"),
        (request("waves", [bytes(16)], inputs=[tensor("in0", "COMPLEX64", (1, 2))]), "INVALID_ARGUMENT", "datatype"),
        (request("simple", [X.tobytes()], inputs=[ONE], outputs=[wanted(name="OUTPUT0"), wanted(name="out0")]),
         "INVALID_ARGUMENT", "output 'OUTPUT0' is requested twice"),
        (request("simple", [X.tobytes()], inputs=[ONE], outputs=[wanted(name="OUTPUT0")] * 9999),
         "INVALID_ARGUMENT", "output 'OUTPUT0' is requested twice"),
        (request("fail", [X.tobytes()[:8]], inputs=[tensor("in0", "FP32", (1, 2))]), None, None),
        (request("fail", [b"\x01" * 8], inputs=[tensor("in0", "FP32", (1, 2))]), "INTERNAL", "failed on this input"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_code(
    made: grpc.Channel, sent: pb.ModelInferRequest, code: str | None, said: str | None
) -> None:
    if code is None or said is None:
        sent.raw_input_contents[0] = bytes(8)
        assert received(call(made, "ModelInfer", sent))["out0"].shape == (1, 2)
        return
    found, text = refused(made, "ModelInfer", sent)
    assert found == code and said in text
    assert "secret" not in text and "Traceback" not in text and "/" not in text.replace("e/o", "")


def test_reserved_parameters_and_wrong_kinds_are_refused(made: grpc.Channel) -> None:
    for key, kind, value in (
        ("triton_x", "bool_param", True), ("timeout", "string_param", "1"), ("timeout", "int64_param", -1),
        ("priority", "double_param", 1.0),
    ):  # fmt: skip
        sent = request("simple", [X.tobytes()], inputs=[ONE])
        setattr(sent.parameters[key], kind, value)
        assert refused(made, "ModelInfer", sent)[0] == "INVALID_ARGUMENT"
    unset = request("simple", [X.tobytes()], inputs=[ONE])
    unset.parameters["timeout"].Clear()
    assert call(made, "ModelInfer", unset).outputs


def test_a_long_message_that_is_not_ascii_still_reaches_its_client(made: grpc.Channel) -> None:
    sent = request("\U0001f600" * 3000, [X.tobytes()], inputs=[ONE])
    code, text = refused(made, "ModelInfer", sent)
    assert code == "NOT_FOUND" and "\U0001f600" in text


def test_an_answer_names_its_request_and_its_trace_and_says_where_its_time_went(made: grpc.Channel) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    data = request("simple", [X.tobytes()], inputs=[ONE]).SerializeToString()
    metadata = (("x-request-id", "mine"), ("traceparent", trace))
    _, done = made.unary_unary("/inference.GRPCInferenceService/ModelInfer").with_call(data, metadata=metadata)
    found = dict(done.trailing_metadata())
    assert found["x-request-id"] == "mine" and found["traceparent"].split("-")[1] == trace.split("-")[1]
    assert found["server-timing"].startswith("queue;dur=")
