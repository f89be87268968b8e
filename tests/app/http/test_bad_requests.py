"""Tests of invalid requests: status, code and message of each."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.app.client import Client
from tests.app.pictures import bomb, npy, npz, png

FORM = "multipart/form-data; boundary=x"


@dataclass(frozen=True, kw_only=True)
class Bad:
    """Request with its expected answer; message is the beginning of the expected message."""

    path: str
    body: bytes = b""
    type: str | None = "application/json"
    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


def js(path: str, body: str, status: int, message: str, code: str | None = None) -> Bad:
    codes = {400: "invalid_request", 404: "model_not_found", 413: "too_large", 422: "input_mismatch"}
    return Bad(path=path, body=body.encode(), status=status, code=code or codes[status], message=message)


ONE = "/models/one/infer"
NAMES = "'add', 'boxes', 'bytes', 'canvas', 'fail', 'flags', 'ints', 'inverse', 'one', 'open', 'shades', 'waves'"

ROWS = [
    # which model
    js("/models/nope/infer", '{"inputs": [[1]]}', 404, f"no model 'nope' (did you mean 'open'?): the store has {NAMES}",
       "model_not_found"),
    js("/infer", '{"inputs": [[1]]}', 404, f"the request names no model: expected ?model= one of {NAMES}"),
    js("/infer", '{"model": "", "inputs": [[1]]}', 404, f"no model '': the store has {NAMES}"),
    js("/infer?model=one&version=7", '{"inputs": [[1]]}', 404, "model 'one' has no version 7: it serves 1",
       "version_not_found"),
    js("/infer?model=one&version=x", '{"inputs": [[1]]}', 404, "model 'one' has no tag 'x'; tags: none",
       "version_not_found"),
    js("/infer?model=one&version=-1", '{"inputs": [[1]]}', 400, "version: found '-1', expected a whole number"),
    js("/infer?model=one&version=1.5", '{"inputs": [[1]]}', 400, "version: found '1.5', expected a whole number"),
    js(ONE, '{"version": 0, "inputs": [[1]]}', 400, "version: found 0, expected a whole number"),
    js(ONE, '{"version": true, "inputs": [[1]]}', 400, "version: found True, expected a whole number"),
    js(ONE, '{"model": "add", "inputs": [[1]]}', 400, "model: found both 'one' and 'add' in one request"),
    js(f"{ONE}?version=1", '{"version": 2, "inputs": [[1]]}', 400, "version: found both 1 and 2 in one request"),
    js(ONE, '{"model": 5, "inputs": [[1]]}', 400, "model: expected a string"),
    # the query
    js(f"{ONE}?modle=x", '{"inputs": [[1]]}', 400, "unknown query parameter 'modle' (did you mean 'model'?)"),
    js("/models/shades/infer?top_k=0", '{"inputs": [[[[1, 2], [3, 4]]]]}', 400, "top_k: expected at least 1, found"),
    js("/models/shades/infer?top_k=many", '{"inputs": [[[[1, 2], [3, 4]]]]}', 400, "top_k: expected a whole number"),
    js(f"{ONE}?top_k=1", '{"inputs": [[1, 2, 3]]}', 400, "unknown parameter 'top_k', this model takes none"),
    # the JSON text
    Bad(path=ONE, status=400, code="invalid_request", message="the body is empty"),
    js(ONE, "{", 400, "the body is not JSON: "),
    js(ONE, '{"inputs": [[1, NaN, 3]]}', 400, "the body is not JSON: line 1 column 17 has NaN or Infinity"),
    js(ONE, '{"inputs": ' + "[" * 40 + "]" * 40 + "}", 400, "the JSON body is nested too deep: found 41 levels"),
    js(ONE, "[[1, 2, 3]]", 400, "the body: expected a JSON object such as"),
    js(ONE, "{}", 400, "the body: expected one of 'inputs', 'image', 'audio' and 'text'"),
    js(ONE, '{"input": [[1, 2, 3]]}', 400, "unknown key 'input' (did you mean 'inputs'?), expected 'model', 'version'"),
    js(ONE, '{"inputs": [[1, 2, 3]], "outputs": "out0"}', 400, "outputs: expected a list of output names"),
    js(ONE, '{"inputs": [[1, 2, 3]], "parameters": []}', 400, "parameters: expected an object"),
    js(ONE, '{"inputs": [[1, 2, 3]], "outputs": ["out0", "out0"]}', 400, "outputs: found 'out0' twice"),
    js(ONE, '{"inputs": [[1, 2, 3]], "outputs": ["out0"' + ',"x"' * 9998 + "]}", 400,
       "outputs: found 9999 names, expected at most 1000"),
    js(f"{ONE}?outputs=out0,%20out0", '{"inputs": [[1, 2, 3]]}', 400, "outputs: found 'out0' twice"),
    js(ONE, '{"inputs": [[1, 2, 3]], "outputs": ["out1"]}', 422,
       "unknown output: found 'out1', expected one of 'out0'"),
    # the tensors
    js(ONE, '{"inputs": [[1, 2]]}', 422, "input 'in0': wrong shape: found [1, 2], expected [?, 3]"),
    js(ONE, '{"inputs": [1, 2, 3]}', 422, "input 'in0': wrong rank: found [3] with 1 dimensions, expected 2 ([?, 3])"),
    js(ONE, '{"inputs": [[1, 2], [3]]}', 422, "input 'in0': found lists of unequal length, expected evenly nested"),
    js(ONE, '{"inputs": [["a", "b", "c"]]}', 422, "input 'in0': found a string, expected numbers for [?, 3] float32"),
    js(ONE, '{"inputs": {"in1": [[1, 2, 3]]}}', 422, "unknown input: found 'in1', expected 'in0'"),
    js(ONE, '{"inputs": {}}', 422, "input 'in0' is missing: found none, expected in0"),
    js("/models/add/infer", '{"inputs": {"in0": [[1, 2]]}}', 422, "input 'in1' is missing: found in0"),
    js("/models/add/infer", '{"inputs": [[1, 2]]}', 422, "the model has 2 inputs: found one unnamed tensor"),
    js("/models/add/infer", '{"inputs": {"in0": [[1, 2], [3, 4]], "in1": [[1, 2], [3, 4], [5, 6]]}}', 422, "expr"),
    js("/models/ints/infer", '{"inputs": [[1.5, 2, 3]]}', 422, "input 'in0': found a number with a fraction"),
    js("/models/bytes/infer", '{"inputs": [[256, 2, 3]]}', 422, "input 'in0': found a value that is out of range"),
    js(ONE, '{"inputs": {"shape": [1000000000], "data": [1]}}', 413, "input 'in0': shape has too many elements"),
    js(ONE, '{"inputs": {"shape": [2, 3], "data": [1]}}', 422, "input 'in0': data does not match its shape: found 1"),
    js(ONE, '{"inputs": {"in0": {"shape": [1, 3], "dtype": "int8", "data": [1, 2, 3]}}}', 422,
       "input 'in0': wrong dtype: found 'int8', expected 'float32'"),
    js(ONE, '{"inputs": {"image": "aGk="}}', 422, "input 'in0' takes no pictures: found a picture, expected a tensor"),
    # .npy and .npz
    Bad(path=ONE, body=npy(np.zeros((1, 3))), type="application/x-npy", status=422, code="input_mismatch",
        message="input 'in0': wrong dtype: found float64, expected float32"),
    Bad(path=ONE, body=npy(np.float32([[1]]))[:-1], type="application/x-npy", status=400, code="invalid_request",
        message="the .npy body does not match its shape"),
    Bad(path=ONE, body=b"not an array", type="application/x-npy", status=400, code="invalid_request",
        message="the .npy body does not begin with the magic bytes of an .npy file"),
    Bad(path=ONE, body=b"PK\x03\x04", type="application/x-npz", status=400, code="invalid_request",
        message="the .npz body is damaged or not an .npz file"),
    Bad(path="/models/add/infer", body=npz(a=np.float32([[1, 2]]), b=np.float32([[1, 2]])), type="application/x-npz",
        status=422, code="input_mismatch", message="unknown input: found 'a', expected 'in0', 'in1'"),
    # pictures
    Bad(path=ONE, body=png(), type="image/png", status=422, code="input_mismatch",
        message="input 'in0' takes no pictures"),
    Bad(path="/models/add/infer", body=png(), type="image/png", status=422, code="input_mismatch",
        message="the model takes no pictures: found a picture, expected tensors for 'in0', 'in1'"),
    Bad(path="/models/canvas/infer", body=b"hello", type="image/png", status=400, code="invalid_request",
        message="the picture is not in a known format, expected one of JPEG, PNG"),
    Bad(path="/models/canvas/infer", body=png(64, 64)[:100], type="image/png", status=400, code="invalid_request",
        message="the picture is damaged or incomplete"),
    Bad(path="/models/canvas/infer", body=bomb(60_000, 60_000), type="image/png", status=413, code="too_large",
        message="the picture has too many pixels"),
    js("/models/canvas/infer", '{"image": 5}', 400, "the picture: image: found a number, expected a base64 string"),
    js("/models/canvas/infer", '{"image": "%%%"}', 400, "the picture: image: not base64"),
    # forms
    Bad(path="/models/canvas/infer", body=b"--x--\r\n", type=FORM, status=400, code="invalid_request",
        message="the form has no file"),
    Bad(path="/models/canvas/infer", body=b"hello", type=FORM, status=400, code="invalid_request",
        message="the form is malformed"),
    Bad(path="/models/canvas/infer", body=b"x", type="multipart/form-data", status=400, code="invalid_request",
        message="Content-Type: found no boundary"),
    # types
    Bad(path=ONE, body=b"a: 1", type="text/yaml", status=415, code="unsupported_media_type",
        message="Content-Type: found 'text/yaml', expected one of application/json, multipart/form-data, image/*,"),
    Bad(path=ONE, body=b"inputs=1", type="application/x-www-form-urlencoded", status=415,
        code="unsupported_media_type", message="Content-Type: found 'application/x-www-form-urlencoded'"),
    Bad(path=ONE, body=b"<svg/>", type="image/svg+xml", status=415, code="unsupported_media_type",
        message="Content-Type: found 'image/svg+xml'"),
    Bad(path=ONE, body=b"\0\1\2", type=None, status=415, code="unsupported_media_type",
        message="Content-Type: found 'none'"),
    Bad(path=ONE, body=b"x", headers={"content-encoding": "gzip"}, status=415, code="unsupported_media_type",
        message="Content-Encoding: found 'gzip', expected none"),
    Bad(path=ONE, body=b'{"inputs": [[1, 2, 3]]}', headers={"accept": "image/png"}, status=406, code="not_acceptable",
        message="Accept: found 'image/png', expected one of application/json, application/x-npz"),
    # our own fault
    Bad(path="/models/fail/infer", body=b'{"inputs": [[1, 2]]}', status=500, code="inference_failed",
        message="model 'fail' failed on this input; see the server's log"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.status} {row.message[:50]}")
def test_a_bad_request_is_told_what_is_wrong(zoo: Client, row: Bad) -> None:
    typed = {} if row.type is None else {"content-type": row.type}
    response = zoo.post(row.path, content=row.body, headers={**typed, **row.headers})
    answer: dict[str, Any] = response.json()
    assert (response.status_code, answer["error"]["code"]) == (row.status, row.code), response.text
    assert answer["error"]["message"].startswith(row.message), answer["error"]["message"]
    assert set(answer) == {"error"} and set(answer["error"]) <= {"code", "message", "detail"}
    assert response.headers["content-type"] == "application/json"


def test_a_mismatch_says_the_same_to_programs(zoo: Client) -> None:
    detail = zoo.infer("one", [[1, 2]]).json()["error"]["detail"]
    assert detail == {"where": "input 'in0'", "found": "[1, 2]", "expected": "[?, 3]"}


def test_a_body_that_looks_like_something_else_is_named(zoo: Client) -> None:
    headers = {"content-type": "text/plain"}
    message = zoo.post(ONE, content=png(), headers=headers).json()["error"]["message"]
    assert message.endswith("; the body looks like image/png: send -H 'content-type: image/png'")


def test_a_picture_is_named_by_its_place_in_the_request(zoo: Client) -> None:
    files = [("file", ("good.png", png())), ("file", ("bad.png", b"oops"))]
    message = zoo.post("/models/canvas/infer", files=files).json()["error"]["message"]
    assert message.startswith("picture 2 ('bad.png') is not in a known format")
    images = [{"image": base64.b64encode(data).decode()} for data in (png(), b"oops")]
    message = zoo.infer("canvas", images).json()["error"]["message"]
    assert message.startswith("picture 2 is not in a known format")


def test_a_failure_of_ours_shows_nothing_of_its_inside(zoo: Client, caplog: pytest.LogCaptureFixture) -> None:
    text = zoo.infer("fail", [[1, 2]]).text
    assert "secret" not in text and "RuntimeError" not in text
    assert "secret path" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "message"),
    [
        ("GET", "/nope", 404, "not_found", "unknown path /nope, expected one that /docs lists"),
        ("POST", "/infer/", 404, "not_found", "unknown path /infer/, expected one that /docs lists"),
        ("GET", "/models/nope", 404, "model_not_found", "no model 'nope' (did you mean 'open'?): the store has"),
        ("GET", "/infer", 405, "method_not_allowed", "/infer: found method GET, expected POST"),
        (
            "DELETE",
            "/models/add/tune",
            405,
            "method_not_allowed",
            "/models/add/tune: found method DELETE, expected GET, POST",
        ),
        ("DELETE", "/models", 405, "method_not_allowed", "/models: found method DELETE, expected GET"),
        ("GET", "/graph?model=one&format=gif", 400, "invalid_request", "format: expected 'json', 'svg'"),
        ("GET", "/graph?model=one&version=x", 404, "version_not_found", "model 'one' has no tag 'x'; tags: none"),
        ("GET", "/graph?model=one&version=-1", 400, "invalid_request", "version: "),
        ("GET", "/graph?model=one&profile=maybe", 400, "invalid_request", "profile: expected true or false"),
    ],
)
def test_the_frameworks_own_errors_have_the_same_shape(
    zoo: Client, method: str, path: str, status: int, code: str, message: str
) -> None:
    response = zoo.request(method, path)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["message"].startswith(message)


def test_a_wrong_method_says_which_are_right(zoo: Client) -> None:
    assert zoo.get("/infer").headers["allow"] == "POST, PUT"


LONG = "x" * 60_000


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (f"/{LONG}", {}),
        (f"/models/{LONG}/infer", {"json": {"inputs": 1}}),
        (f"/infer?{LONG}=1", {"json": {"inputs": 1}}),
        (f"/infer?version={LONG}", {"json": {"inputs": 1}}),
        (f"/infer?model=one&version={'9' * 5000}", {"json": {"inputs": 1}}),
        ("/infer", {"json": {"model": LONG, "inputs": 1}}),
        ("/infer?model=one", {"json": {"model": LONG, "inputs": 1}}),
        ("/infer?model=one", {"json": {LONG: 1}}),
        ("/infer?model=one", {"json": {"inputs": {LONG: 1}}}),
        ("/infer?model=one", {"json": {"inputs": {"data": 1, LONG: 1}}}),
        ("/infer?model=one", {"json": {"inputs": {"in0": {"data": 1, "dtype": LONG}}}}),
        ("/infer?model=one", {"json": {"inputs": {"in0": {"data": 1, "dtype": [[LONG] * 100] * 10}}}}),
        ("/infer?model=one", {"json": {"inputs": {"in0": {"data": 1, "shape": [LONG]}}}}),
        ("/infer?model=one", {"json": {"inputs": 1, "version": [LONG]}}),
        ("/infer?model=one", {"json": {"inputs": [[1, 2, 3]], "outputs": [LONG]}}),
        ("/infer?model=one", {"json": {"inputs": [[1, 2, 3]], "parameters": {LONG: 1}}}),
        ("/infer?model=shades", {"json": {"inputs": [[1, 2, 3]], "parameters": {"top_k": LONG}}}),
        ("/infer?model=shades", {"json": {"inputs": [[1, 2, 3]], "parameters": {"top_k": [[LONG]] * 100}}}),
        ("/infer?model=one", {"content": b"x", "headers": {"content-type": LONG}}),
        ("/infer?model=one", {"content": b"x", "headers": {"content-encoding": LONG}}),
        ("/infer?model=one", {"json": {"inputs": 1}, "headers": {"accept": LONG}}),
        ("/infer?model=canvas", {"files": {"file": (LONG, b"x")}}),
        ("/infer?model=canvas", {"files": {"file": ("x", b"x")}, "data": {LONG: "x"}}),
        ("/infer?model=one", {"content": npz(**{LONG: np.float32([[1]])})}),
        ("/infer?model=one", {"content": npy(np.zeros(1, f"S{10**9 - 1}")[:0])}),
        (f"/graph?model=one&format={LONG}", {}),
        (f"/graph?model={LONG}", {}),
        (f"/graph?model=one&version={'9' * 4000}", {}),
        ("/graph?model=one&version=18446744073709551616", {}),
        (f"/graph?model=one&version={'9' * 5000}", {}),
        (f"/models/{LONG}", {}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_answer_to_a_mistake_is_longer_than_the_mistake_deserves(
    zoo: Client, path: str, more: dict[str, Any]
) -> None:
    response = zoo.request("POST" if more else "GET", path, **more)
    assert 400 <= response.status_code < 500, response.text[:500]
    assert len(response.content) < 10_000 and response.json()["error"]["message"]
