"""Tests of the requests that both clients send, and of the results they return."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest
import tritonclient.utils as triton

from app.protocol.v2.ports import NAMES, dtype_of
from pnnx_client import Client, tensors
from tests.app.pictures import gradient, png
from tests.app.v2_models import DATATYPES

F32 = np.float32
X = np.linspace(-1, 1, 6, dtype=F32).reshape(2, 3)
# Image for the classifier: the lower part is the brightest.
SHADES = np.array([[[[0.1, 0.2], [0.9, 0.0]]]], F32)


def test_a_single_array_is_the_first_input(client: Client) -> None:
    result = client.infer("one", X)
    assert (result.model, result.version, result.predictions, result.timing) == ("one", 1, None, {})
    assert list(result) == ["out0"] and len(result) == 1
    np.testing.assert_array_equal(result["out0"], X + 1)


@pytest.mark.parametrize("inputs", [lambda x: x, lambda x: {"INPUT0": x}, lambda x: {"in0": x}])
def test_outputs_have_the_model_names_unless_others_are_requested(client: Client, inputs: Any) -> None:
    x = np.ones((1, 16), F32)
    assert list(client.infer("simple", inputs(x))) == ["OUTPUT0"]
    assert list(client.infer("simple", inputs(x), outputs=["out0"])) == ["out0"]


def test_arrays_are_sent_by_name(client: Client) -> None:
    result = client.infer("add", {"in1": X[:, :2], "in0": X[:, 1:]})
    np.testing.assert_array_equal(result["out0"], X[:, :2] + X[:, 1:])


@pytest.mark.parametrize("predictions", [False, True])
@pytest.mark.parametrize("code", DATATYPES)
def test_every_datatype_survives_a_round_trip(client: Client, code: str, predictions: bool) -> None:
    dtype = dtype_of(DATATYPES[code])
    array = np.array([[0, 1, 1], [1, 0, 3]]).astype(dtype)
    result = client.infer(f"copy_{code}", array, predictions=predictions, outputs=True)
    assert result["out0"].dtype == dtype
    np.testing.assert_array_equal(result["out0"], array)


def test_the_client_has_the_servers_datatypes() -> None:
    assert tensors.DATATYPES == NAMES
    for name in NAMES[:-1]:
        assert tensors.datatype_of(np.zeros(1, dtype_of(name))) == name


def test_string_tensors_of_the_protocol_are_read() -> None:
    texts = np.array([[b"", b"a"], ["\N{SNOWMAN}".encode(), bytes(300)]], object)
    found = tensors.from_bytes(memoryview(triton.serialize_byte_tensor(texts).item()), "BYTES", texts.shape)
    np.testing.assert_array_equal(found, texts)
    assert tensors.elements_to_bytes(list(texts.ravel())) == triton.serialize_byte_tensor(texts).item()


def test_misaligned_values_are_copied() -> None:
    values = np.arange(4, dtype=np.float64)
    odd = memoryview(b"." + values.tobytes())[1:]
    found = tensors.from_bytes(odd, "FP64", (2, 2))
    assert found.flags.aligned and not found.flags.writeable
    np.testing.assert_array_equal(found, values.reshape(2, 2))


def test_bfloat16_is_widened_without_ml_dtypes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_BFLOAT16", None)
    array = np.array([[1.5, -2, np.inf]], ml_dtypes.bfloat16)
    found = client.infer("copy_bf16", array)["out0"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, array.astype(F32))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3), F32), np.asfortranarray(X), X[:, ::-1], X.astype(">f4"), np.broadcast_to(F32(2), (4, 3)),
        [[0.5, 1, 2]], [[1.5, 2.5, 3.5]] * 3,
    ],
    ids=["empty", "fortran", "reversed", "big-endian", "broadcast", "list", "lists"],
)  # fmt: skip
def test_arrays_may_have_any_memory_layout(client: Client, array: Any) -> None:
    np.testing.assert_array_equal(client.infer("one", array)["out0"], np.asarray(array, F32) + 1)


def test_integers_of_a_list_are_int64_and_booleans_bool(client: Client) -> None:
    np.testing.assert_array_equal(client.infer("ints", [[1, 2, 3]])["out0"], [[2, 3, 4]])
    np.testing.assert_array_equal(client.infer("flags", [[True, False]])["out0"], [[True, False]])


def test_outputs_are_read_only_views_of_the_answer(client: Client) -> None:
    found = client.infer("one", X)["out0"]
    assert found.flags.aligned and not found.flags.owndata and not found.flags.writeable


def test_complex_numbers_come_as_json(client: Client) -> None:
    waves = np.array([[1 + 2j, complex(np.inf, -3)]], np.complex64)
    found = client.infer("waves", waves, predictions=True, outputs=True)["out0"]
    assert found.dtype == np.complex64
    np.testing.assert_array_equal(found, waves)


def test_non_finite_values_survive_a_json_round_trip(client: Client) -> None:
    for predictions in (False, True):
        found = client.infer("inverse", np.array([[0.0, -0.0, np.nan]], F32), predictions=predictions, outputs=True)
        np.testing.assert_array_equal(found["out0"], [[np.inf, -np.inf, np.nan]])


def test_a_version_is_selected_by_number(client: Client) -> None:
    assert client.infer("named", -X).version == 2
    assert client.infer("named", X, version=1).version == 1
    assert client.infer("named", X, version=1, predictions=True).version == 1
    np.testing.assert_array_equal(client.infer("named", -abs(X), version=1)["out0"], -abs(X))
    np.testing.assert_array_equal(client.infer("named", -abs(X))["out0"], 0 * X)


@pytest.mark.parametrize("predictions", [False, True])
def test_outputs_are_selected_by_name(client: Client, predictions: bool) -> None:
    picture = np.zeros((1, 3, 4, 8), F32)
    assert list(client.infer("boxes", picture, outputs=["out1"], predictions=predictions)) == ["out1"]
    assert list(client.infer("boxes", picture, outputs=True, predictions=predictions)) == ["out0", "out1"]


def test_arrays_get_predictions_on_request(client: Client) -> None:
    result = client.infer("shades", SHADES, predictions=True)
    assert [each["label"] for each in result.predictions] == ["below", "right", "left"]
    assert result.outputs == {} and result.timing["total_ms"] > 0


def test_parameters_imply_predictions(client: Client) -> None:
    assert [each["label"] for each in client.infer("shades", SHADES, parameters={"top_k": 1}).predictions] == ["below"]


def test_arrays_by_name_have_predictions_too(client: Client) -> None:
    result = client.infer("add", {"in1": X[:, :2], "in0": X[:, 1:]}, predictions=True, outputs=True)
    np.testing.assert_array_equal(result["out0"], X[:, :2] + X[:, 1:])


def pictures(folder: Path) -> list[Any]:
    """Return the same image in every accepted form."""
    path = folder / "picture.png"
    path.write_bytes(png(2, 2))
    data = path.read_bytes()
    return [path, str(path), data, bytearray(data), memoryview(data), gradient(2, 2)]


def test_pictures_are_paths_bytes_or_images(client: Client, tmp_path: Path) -> None:
    found = [client.infer("shades", picture) for picture in pictures(tmp_path)]
    assert all(result.predictions == found[0].predictions and not result.outputs for result in found)
    assert found[0].predictions[0]["label"] in ("left", "right", "below")


def test_a_list_of_pictures_is_a_batch(client: Client, tmp_path: Path) -> None:
    result = client.infer("shades", pictures(tmp_path), outputs=True)
    assert len(result.predictions) == 6 and result["out0"].shape == (6, 3)
    assert all(row == result.predictions[0] for row in result.predictions)


def test_outputs_of_images_come_as_bytes_without_predictions(client: Client, tmp_path: Path) -> None:
    alone = client.infer("shades", pictures(tmp_path), predictions=False)
    with_predictions = client.infer("shades", pictures(tmp_path), outputs=True)
    assert alone.predictions is None and not alone["out0"].flags.owndata
    np.testing.assert_allclose(alone["out0"], with_predictions["out0"], rtol=1e-6)


def test_graphs_are_descriptions_or_text(client: Client) -> None:
    described = client.graph("one", profile=True)
    assert described["name"] == "one" and any("time_us" in operator for operator in described["operators"])
    assert client.graph("one", "svg").startswith("<svg")
    assert client.graph("named", format="param", version=1).startswith("7767517")
    assert "nn.ReLU" in client.graph("named", "param")


def test_models_are_listed_and_shown(client: Client) -> None:
    assert {"shades", "boxes"} < {row["name"] for row in client.models()}
    assert client.model("shades")["labels"] == ["left", "right", "below"]
    assert client.live() is True and client.ready() is True


@pytest.mark.parametrize(
    ("inputs", "options", "error"),
    [
        (["a", np.zeros(1)], {}, (TypeError, ValueError)),
        ({"in0": "text"}, {}, TypeError),
        (np.array([object()]), {"predictions": True}, TypeError),
        (np.zeros((1, 2), np.complex64), {}, TypeError),
        (X, {"outputs": False}, ValueError),
        (Path("nowhere.png"), {}, FileNotFoundError),
    ],
)
def test_invalid_arguments_are_refused_before_sending(
    client: Client, inputs: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.infer("one", inputs, **options)


def test_the_request_has_the_deadline_and_aligned_tensors(stub: Any) -> None:
    client, asked = stub(partial(httpx.Response, 400), api_key="secret")
    with pytest.raises(ValueError):
        client.infer("a/b", X, timeout=2.5)
    (request,) = asked
    assert request.url.raw_path == b"/v2/models/a%2Fb/infer" and request.headers["authorization"] == "Bearer secret"
    length = int(request.headers["inference-header-content-length"])
    assert length % 64 == 0 and b'"timeout":2500000' in request.content[:length]
    assert request.content[length:] == X.tobytes()


def test_connections_are_reused(url: str, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpcore

    opened = []
    for kind in (httpcore.HTTPConnection, httpcore.AsyncHTTPConnection):
        whole = kind.__init__
        monkeypatch.setattr(kind, "__init__", lambda *a, whole=whole, **k: (opened.append(1), whole(*a, **k))[1])
    client = connect(url)
    for _ in range(5):
        client.infer("one", X)
    assert len(opened) == 1


def test_a_client_is_a_context(url: str) -> None:
    with Client(url) as client:
        assert client.live()
    with pytest.raises(RuntimeError, match="closed"):
        client.infer("one", X)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://server", "http://", "http://a:b"])
def test_an_invalid_url_is_refused(connect: Any, url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        connect(url)
