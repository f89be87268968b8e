"""Tests of POST /v2/models/{name}/infer: every form of a tensor, and every refusal."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.http.v2.infer import _unpacked
from tests.app.client import Client, serving
from tests.app.http.v2.messages import LENGTH, NUMPY, binary, received, refused, send, tensor
from tests.app.pictures import png
from tests.app.v2_models import DATATYPES, write_v2_zoo

X = np.arange(16, dtype=np.float32)[None]
ROW = tensor("INPUT0", "FP32", X)


def values_of(datatype: str) -> np.ndarray[Any, Any]:
    dtype = NUMPY[datatype]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([[limits.min, 1, limits.max]], dtype)
    return np.array([[0, 1, 1]] if dtype.kind == "b" else [[-2.5, 0, 1.75]], dtype)


@pytest.mark.parametrize("wants_binary", [True, False])
@pytest.mark.parametrize("sends_binary", [True, False])
@pytest.mark.parametrize(("code", "datatype"), DATATYPES.items())
def test_a_tensor_of_every_datatype_goes_there_and_back_as_bytes_and_as_json(
    v2: Client, code: str, datatype: str, sends_binary: bool, wants_binary: bool
) -> None:
    sent = values_of(datatype)
    row, tail = binary("in0", datatype, sent) if sends_binary else (tensor("in0", datatype, sent), b"")
    parameters = {"binary_data_output": wants_binary}
    answer = send(v2, f"copy_{code}", {"inputs": [row], "parameters": parameters}, tail)
    np.testing.assert_array_equal(received(answer)["out0"], sent, strict=True)
    kind = "application/octet-stream" if wants_binary else "application/json"
    assert answer.headers["content-type"] == kind


def test_json_data_may_be_flat_or_nested(v2: Client) -> None:
    flat = {**ROW, "data": X.ravel().tolist()}
    for row in (ROW, flat):
        np.testing.assert_array_equal(received(send(v2, "simple", {"inputs": [row]}))["OUTPUT0"], X + 1)


def test_some_inputs_may_be_bytes_and_others_json(v2: Client) -> None:
    one = np.float32([[1, 2]])
    row, tail = binary("in1", "FP32", one)
    answer = send(v2, "add", {"inputs": [tensor("in0", "FP32", one), row]}, tail)
    np.testing.assert_array_equal(received(answer)["out0"], one + one)


def test_an_output_s_own_wish_wins_over_the_request_s(v2: Client) -> None:
    wanted = [{"name": "OUTPUT0", "parameters": {"binary_data": False}}]
    answer = send(v2, "simple", {"inputs": [ROW], "outputs": wanted, "parameters": {"binary_data_output": True}})
    assert LENGTH not in answer.headers and "data" in answer.json()["outputs"][0]


def test_outputs_come_in_the_order_asked_for_and_only_those(v2: Client) -> None:
    picture = np.zeros((1, 3, 4, 8), np.float32)
    row, tail = binary("in0", "FP32", picture)
    both = received(send(v2, "boxes", {"inputs": [row]}, tail))
    assert list(both) == ["out0", "out1"]
    one = send(v2, "boxes", {"inputs": [row], "outputs": [{"name": "out1"}]}, tail)
    assert list(received(one)) == ["out1"]


def test_an_answer_repeats_the_id_and_names_model_and_version(v2: Client) -> None:
    answer = send(v2, "simple", {"id": "42", "inputs": [ROW]}).json()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("42", "simple", "1")
    for document in ({"inputs": [ROW]}, {"inputs": [ROW], "id": ""}):
        assert "id" not in send(v2, "simple", document).json()


def test_aliases_are_understood_and_outputs_have_the_names_they_are_asked_for_by(v2: Client) -> None:
    request = {"inputs": [{**ROW, "name": "in0"}]}
    assert list(received(send(v2, "simple", request))) == ["OUTPUT0"]
    assert list(received(send(v2, "simple", {**request, "outputs": [{"name": "out0"}]}))) == ["out0"]


def test_a_body_without_json_is_the_only_input_s_tensor(v2: Client) -> None:
    answer = v2.post("/v2/models/simple/infer", content=X.tobytes(), headers={LENGTH: "0"})
    np.testing.assert_array_equal(received(answer)["OUTPUT0"], X + 1)
    assert answer.headers["content-type"] == "application/octet-stream"
    for size in (60, 63, 128):
        assert "INPUT0" in refused(v2.post("/v2/models/simple/infer", content=bytes(size), headers={LENGTH: "0"}))
    assert "2 inputs" in refused(v2.post("/v2/models/add/infer", content=bytes(8), headers={LENGTH: "0"}))


def test_pictures_are_sent_as_bytes_elements_or_as_the_body(v2: Client) -> None:
    picture = png(2, 2)
    element = len(picture).to_bytes(4, "little") + picture
    raw = v2.post("/v2/models/shades/infer", content=picture, headers={LENGTH: "0"})
    for count in (1, 2):
        row = {
            "name": "in0",
            "datatype": "BYTES",
            "shape": [count],
            "parameters": {"binary_data_size": count * len(element)},
        }
        scores = received(send(v2, "shades", {"inputs": [row]}, element * count))["out0"]
        assert scores.shape == (count, 3)
        np.testing.assert_array_equal(scores[:1], received(raw)["out0"])


def test_classification_gives_value_index_and_label_best_first(v2: Client) -> None:
    wanted = [{"name": "OUTPUT0", "parameters": {"classification": 2}}]
    values = np.float32([[*range(14), 13, 5], [7] * 16])
    answer = send(v2, "simple", {"inputs": [tensor("INPUT0", "FP32", values)], "outputs": wanted}).json()
    (row,) = answer["outputs"]
    assert (row["datatype"], row["shape"]) == ("BYTES", [2, 2])
    assert row["data"] == ["14.000000:13:label13", "14.000000:14:label14", "8.000000:0:label0", "8.000000:1:label1"]


def test_classes_are_charged_before_they_are_made(tmp_path: Path) -> None:
    write_v2_zoo(tmp_path)
    wanted = [{"name": "OUTPUT0", "parameters": {"classification": 16}}]
    many = tensor("INPUT0", "FP32", np.zeros((64, 16), np.float32))
    with serving(tmp_path, max_bytes_in_flight=150_000, load_model=("simple",), model_control="explicit") as client:
        assert send(client, "simple", {"inputs": [many]}).status_code == 200
        assert "memory" in refused(send(client, "simple", {"inputs": [many], "outputs": wanted}), 413)


def test_classification_of_integers_and_of_more_classes_than_there_are(v2: Client) -> None:
    wanted = [{"name": "out0", "parameters": {"classification": 9, "binary_data": True}}]
    answer = send(v2, "copy_i64", {"inputs": [tensor("in0", "INT64", np.int64([[5, 2**62, -3]]))], "outputs": wanted})
    length = int(answer.headers[LENGTH])
    texts = [f"{2**62}:1", "5:0", "-3:2"]
    assert answer.content[length:] == b"".join(len(t).to_bytes(4, "little") + t.encode() for t in texts)
    assert json.loads(answer.content[:length])["outputs"][0]["shape"] == [1, 3]


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_are_unpacked_and_answers_packed_for_who_asks_for_that_alone(
    v2: Client, encoding: str, pack: Any
) -> None:
    row, tail = binary("INPUT0", "FP32", X)
    head = json.dumps({"inputs": [row]}).encode()
    headers = {LENGTH: str(len(head)), "content-encoding": encoding, "accept-encoding": encoding}
    answer = v2.post("/v2/models/simple/infer", content=pack(head + tail), headers=headers)
    assert answer.headers["content-encoding"] == encoding  # httpx unpacks it
    np.testing.assert_array_equal(received(answer)["OUTPUT0"], X + 1)
    plain = send(v2, "simple", {"inputs": [ROW]}, **{"accept-encoding": "gzip, deflate, br"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("values", [b"\0", b"random"])
@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_packed_body_of_any_size_is_what_was_packed(encoding: str, pack: Any, values: bytes, size: int) -> None:
    body = bytes(size) if values == b"\0" else np.random.default_rng(0).bytes(size)
    assert _unpacked(bytearray(pack(body)), encoding, size) == body


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [(b"no gzip", "gzip", 400), (gzip.compress(bytes(100), mtime=0)[:-9], "gzip", 400), (b"x", "br", 415),
     (gzip.compress(bytes(80 << 20), mtime=0), "gzip", 413)],
    ids=["damaged", "cut", "unknown", "large"],
)  # fmt: skip
def test_packed_bodies_that_are_damaged_unknown_or_too_large_are_refused(
    v2: Client, body: bytes, encoding: str, status: int
) -> None:
    refused(v2.post("/v2/models/simple/infer", content=body, headers={"content-encoding": encoding}), status)


def test_what_json_has_no_numbers_for_is_refused_unless_asked_otherwise(v2: Client) -> None:
    row = tensor("in0", "FP32", np.float32([[0, 1, -0.0]]))
    assert "2 non-finite values" in refused(send(v2, "inverse", {"inputs": [row]}))
    as_null = send(v2, "inverse", {"inputs": [row], "parameters": {"non_finite": "null"}})
    assert as_null.json()["outputs"][0]["data"] == [None, 1.0, None]
    as_token = send(v2, "inverse", {"inputs": [row], "parameters": {"non_finite": "token"}})
    assert json.loads(as_token.content)["outputs"][0]["data"] == [np.inf, 1.0, -np.inf]
    as_bytes = send(v2, "inverse", {"inputs": [row], "parameters": {"binary_data_output": True}})
    np.testing.assert_array_equal(received(as_bytes)["out0"], np.float32([[np.inf, 1, -np.inf]]))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected a JSON object"),
        ({}, "no 'inputs'"),
        ({"inputs": []}, "no 'inputs'"),
        ({"inputs": [1]}, "inputs: expected a list of objects"),
        ({"inputs": [{**ROW, "name": 1}]}, "Unable to parse 'name'"),
        ({"inputs": [{**ROW, "name": "WRONG"}]}, "unexpected inference input 'WRONG' for model 'simple'"),
        ({"inputs": [ROW, {**ROW, "name": "in0"}]}, "input 'INPUT0' is given twice"),
        ({"inputs": [{**ROW, "datatype": "FP64"}]}, "data-type is 'FP64', but model 'simple' expects 'FP32'"),
        ({"inputs": [{**ROW, "datatype": "FLOAT"}]}, "unknown datatype 'FLOAT'"),
        ({"inputs": [{**ROW, "shape": [16]}]}, "Expected [-1, 16], got [16]. The batch dimension is missing"),
        ({"inputs": [{**ROW, "shape": [16, 1]}]}, "dimensions are swapped"),
        ({"inputs": [{**ROW, "shape": "16"}]}, "Unable to parse 'shape'"),
        ({"inputs": [{**ROW, "shape": [1, -16]}]}, "Unable to parse 'shape'"),
        ({"inputs": [{**ROW, "shape": [2**40, 16]}]}, "too many elements"),
        ({"inputs": [{**ROW, "data": [1, 2]}]}, "found 2 values, expected 16"),
        ({"inputs": [{**ROW, "data": [[1, 2]]}]}, "INPUT0"),
        ({"inputs": [{**ROW, "data": [["a"] * 16]}]}, "INPUT0"),
        ({"inputs": [{**ROW, "parameters": {"binary_data_size": 64}}]}, "must set only one of the following fields"),
        ({"inputs": [{key: ROW[key] for key in ("name", "datatype", "shape")}]}, "must set only one of"),
        ({"inputs": [{**ROW, "parameters": 1}]}, "Unable to parse 'parameters'"),
        ({"inputs": [ROW], "outputs": [{"name": "z"}]}, "unexpected inference output 'z' for model 'simple'"),
        ({"inputs": [ROW], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": 1}}]}, "'binary_data'"),
        ({"inputs": [ROW], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": "2"}}]}, "classification"),
        ({"inputs": [ROW], "outputs": [{"name": "OUTPUT0"}] * 2}, "output 'OUTPUT0' is requested twice"),
        ({"inputs": [ROW], "outputs": [{"name": "OUTPUT0"}, {"name": "out0"}]}, "output 'OUTPUT0' is requested twice"),
        ({"inputs": [ROW], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}] * 9999},
         "output 'OUTPUT0' is requested twice"),
        ({"inputs": [ROW], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 3}}] * 9999},
         "output 'OUTPUT0' is requested twice"),
        ({"inputs": [ROW], "parameters": {"priority": "high"}}, "Unable to parse 'priority'"),
        ({"inputs": [ROW], "parameters": {"timeout": -1}}, "Unable to parse 'timeout'"),
        ({"inputs": [ROW], "parameters": {"triton_x": 1}}, "reserved"),
        ({"inputs": [ROW], "parameters": {"non_finite": 1}}, "non_finite"),
        ({"inputs": [ROW], "id": 7}, "Unable to parse 'id'"),
    ],
)  # fmt: skip
def test_a_request_that_does_not_fit_is_refused_with_what_was_found_and_expected(
    v2: Client, document: Any, said: str
) -> None:
    status = 413 if said == "too many elements" else 400
    assert said in refused(send(v2, "simple", document), status)


@pytest.mark.parametrize("length", ["-1", "x", "1000", "1.5", "9" * 30])
def test_a_json_length_that_is_not_within_the_body_is_refused(v2: Client, length: str) -> None:
    answer = v2.post("/v2/models/simple/infer", content=b"{}", headers={LENGTH: length})
    assert "inference header size should be in range (0, 2)" in refused(answer)


@pytest.mark.parametrize("change", [-1, 1, 64])
def test_bytes_that_are_too_few_or_too_many_are_refused(v2: Client, change: int) -> None:
    row, tail = binary("INPUT0", "FP32", X)
    tail = tail[:change] if change < 0 else tail + bytes(change)
    assert "bytes" in refused(send(v2, "simple", {"inputs": [row]}, tail))
    row["parameters"]["binary_data_size"] = len(tail)
    assert "unexpected size for input 'INPUT0', expecting 64 bytes" in refused(
        send(v2, "simple", {"inputs": [row]}, tail)
    )


@pytest.mark.parametrize("tail", [b"", b"\1\0\0", b"\5\0\0\0abc", b"\0\0\0\0\0\0\0\0", b"\xff\xff\xff\xff"])
def test_elements_that_are_not_one_after_its_length_are_refused(v2: Client, tail: bytes) -> None:
    row = {"name": "in0", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(tail)}}
    refused(send(v2, "shades", {"inputs": [row]}, tail))


def test_more_pictures_than_there_may_be_are_refused_before_each_is_an_object(
    v2: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("app.protocol.v2.inputs.elements_of")
    row = {"name": "in0", "datatype": "BYTES", "shape": [1000], "parameters": {"binary_data_size": 4000}}
    answer = send(v2, "shades", {"inputs": [row]}, bytes(4000))
    assert answer.status_code == 413 and "found 1000, expected at most 32" in answer.json()["error"]


def test_bytes_where_the_model_takes_no_pictures_are_refused(v2: Client) -> None:
    row = {"name": "INPUT0", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 4}}
    assert "data-type is 'BYTES'" in refused(send(v2, "simple", {"inputs": [row]}, bytes(4)))


def test_a_shape_of_a_picture_the_wrong_way_round_is_recognised(v2: Client) -> None:
    row, tail = binary("in0", "FP32", np.zeros((1, 4, 6, 3), np.float32))
    assert "looks like NHWC" in refused(send(v2, "image", {"inputs": [row]}, tail))


def test_unknown_models_versions_paths_and_methods_have_the_protocol_s_errors(v2: Client) -> None:
    assert "'nope'" in refused(send(v2, "nope", {"inputs": [ROW]}), 404)
    assert "no version 9" in refused(v2.post("/v2/models/simple/versions/9/infer", content=b"{}"), 404)
    assert refused(v2.get("/v2/nothing"), 404) == "Not Found"
    assert refused(v2.get("/v2/models/simple/infer"), 405) == "Method Not Allowed"


def test_a_failure_of_the_model_is_a_500_without_its_inside(v2: Client) -> None:
    row = tensor("in0", "FP32", np.float32([[1, 2]]))
    assert "secret" not in refused(send(v2, "fail", {"inputs": [row]}), 500)


def test_an_output_the_protocol_has_no_datatype_for_is_refused(v2: Client) -> None:
    row = {"name": "in0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    assert "expects 'COMPLEX64'" in refused(send(v2, "waves", {"inputs": [row]}))


def test_a_time_that_is_up_before_the_run_begins_is_a_504(v2: Client) -> None:
    assert "time" in refused(send(v2, "simple", {"inputs": [ROW], "parameters": {"timeout": 1}}), 504)
