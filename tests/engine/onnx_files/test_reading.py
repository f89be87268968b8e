"""ONNX files are read whole, their tensors where they lie, and everything that is wrong with one is said."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, image_network, model, node, onnx, save, value


def test_a_network_gives_what_the_reference_evaluator_gives(tmp_path: Path) -> None:
    proto, feeds = image_network()
    graph = engine.load(save(tmp_path, proto))
    for backend in ("reference", "compiled"):
        (found,) = engine.Session(graph, backend=backend).run(feeds)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected(proto, feeds)[0], rtol=1e-4, atol=1e-5)


def test_what_a_network_becomes_is_as_short_as_a_pair_would_be(tmp_path: Path) -> None:
    graph = engine.load(save(tmp_path, image_network()[0]))
    types = [op.type for op in graph.operators]
    assert [type for type in types if not type.startswith("pnnx.")] == [
        "nn.Conv2d", "nn.ReLU", "nn.Conv2d", "nn.BatchNorm2d", "nn.Hardswish", "nn.MaxPool2d", "Tensor.reshape",
        "nn.Linear", "F.softmax",
    ]  # fmt: skip
    assert graph.inputs[0].spec == engine.TensorSpec((None, 3, 12, 12), np.dtype(np.float32))
    assert graph.outputs[0].spec == engine.TensorSpec((None, 10), np.dtype(np.float32))


def test_a_model_can_be_fed_by_the_names_of_its_inputs(tmp_path: Path) -> None:
    proto = model([node("Sub", ["b2", "a1"], ["y"])], [value("b2", [2]), value("a1", [2])], [value("y", [2])])
    session = engine.Session(engine.load(save(tmp_path, proto)), backend="reference")
    one, two = np.ones(2, np.float32), np.full(2, 3, np.float32)
    np.testing.assert_array_equal(session.run({"b2": two, "a1": one})[0], [2, 2])
    np.testing.assert_array_equal(session.run([two, one])[0], [2, 2])


def test_a_model_saved_as_a_pair_is_the_same_model(tmp_path: Path) -> None:
    proto, feeds = image_network()
    graph = engine.load(save(tmp_path, proto))
    graph.save(tmp_path / "m.pnnx.param", tmp_path / "m.pnnx.bin")
    again = engine.load(tmp_path / "m.pnnx.param")
    outputs = [engine.Session(each, backend="reference").run(feeds)[0] for each in (graph, again)]
    np.testing.assert_array_equal(*outputs)
    assert again.source == graph.source


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    weight = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "w"], ["y"])]
    proto = model(nodes, [value("x", [1, 256])], [value("y", [256, 256])], {"w": weight})
    graph = engine.load(save(tmp_path, proto))
    stored = [op.attributes[key].data for op in graph.source.operators for key in op.attributes]
    assert len(stored) == 2
    for each, wanted in zip(stored, (weight.T, weight), strict=True):
        np.testing.assert_array_equal(each, wanted)
        assert np.shares_memory(*stored) and not each.flags.owndata and not each.flags.writeable


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint16, np.bool_, np.complex64, np.int64])
@pytest.mark.parametrize("raw", [True, False])
def test_every_dtype_comes_out_of_both_ways_to_store_it(tmp_path: Path, dtype: type, raw: bool) -> None:
    values = np.arange(700).astype(dtype)
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    content = values.tobytes() if raw else values
    proto = model([node("Identity", ["w"], ["y"])], [], [value("y", [700], number)])
    proto.graph.initializer.append(onnx.helper.make_tensor("w", number, [700], content, raw=raw))
    (found,) = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run([])
    np.testing.assert_array_equal(found, values)
    assert found.dtype == dtype


def test_tensors_may_lie_in_a_file_beside_the_model(tmp_path: Path) -> None:
    weight = np.arange(1024, dtype=np.float32).reshape(32, 32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 32])], [value("y", [1, 32])], {"w": weight})
    onnx.save_model(proto, str(tmp_path / "model.onnx"), save_as_external_data=True, location="model.onnx.data",
                    size_threshold=0)  # fmt: skip
    x = np.ones((1, 32), np.float32)
    (found,) = engine.Session(engine.load(tmp_path / "model.onnx"), backend="reference").run([x])
    np.testing.assert_allclose(found, x @ weight)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "a/../../w.bin", "link", "..\\w.bin", ""])
def test_no_file_outside_the_folder_is_opened(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "w.bin")
    proto = model([node("Identity", ["w"], ["y"])], [], [value("y", [4])], {"w": np.zeros(4, np.float32)})
    onnx.external_data_helper.set_external_data(proto.graph.initializer[0], location or "x")
    proto.graph.initializer[0].external_data[0].value = location
    proto.graph.initializer[0].ClearField("raw_data")
    with pytest.raises(engine.EngineError, match="outside") as caught:
        engine.load(save(folder, proto))
    assert str(tmp_path) not in str(caught.value)


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, image_network()[0])
    from engine.onnx.reading.source import library

    library.cache_clear()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(engine.EngineError, match=r"pnnx-serve\[onnx\]"):
        engine.load(path)
    library.cache_clear()


def test_all_that_is_missing_is_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Fourier", ["x"], ["a"], name="first", domain="com.example"),
        node("Relu", ["a"], ["b"]),
        onnx.helper.make_node("Wavelet", ["b"], ["y"], name="second", domain="com.example"),
    ]
    proto = model(nodes, [value("x", [2])], [value("y", [2])], domains=["com.example"])
    (error,) = engine.check(save(tmp_path, proto))
    for part in ("first", "Fourier", "second", "Wavelet", "com.example", "opset 1", "2 operators"):
        assert part in str(error)


def test_functions_of_the_file_are_expanded(tmp_path: Path) -> None:
    body = [
        onnx.helper.make_node("Constant", [], ["half"], value=onnx.numpy_helper.from_array(np.float32(0.5))),
        onnx.helper.make_node("LeakyRelu", ["x"], ["r"]),
        onnx.helper.make_node("Mul", ["r", "half"], ["y"]),
    ]
    reference = body[1].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    imports = [onnx.helper.make_opsetid("", 21)]
    function = onnx.helper.make_function("local", "Halved", ["x"], ["y"], body, imports, ["slope"])
    nodes = [onnx.helper.make_node("Halved", ["x"], ["y"], domain="local", slope=0.25)]
    proto = model(nodes, [value("x", [3])], [value("y", [3])], functions=[function], domains=["local"])
    feeds = {"x": np.array([-4, 0, 4], np.float32)}
    (found,) = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run(feeds)
    np.testing.assert_allclose(found, [-0.5, 0, 2])


def test_functions_in_a_circle_are_refused(tmp_path: Path) -> None:
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("local", 1)]
    functions = [
        onnx.helper.make_function(
            "local", name, ["x"], ["y"],
            [onnx.helper.make_node(other, ["x"], ["t"], domain="local"),
             onnx.helper.make_node(other, ["t"], ["y"], domain="local")],
            imports,
        )
        for name, other in (("A", "B"), ("B", "A"))
    ]  # fmt: skip
    nodes = [onnx.helper.make_node("A", ["x"], ["y"], domain="local")]
    proto = model(nodes, [value("x", [3])], [value("y", [3])], functions=functions, domains=["local"])
    with pytest.raises(engine.EngineError, match="calls itself"):
        engine.load(save(tmp_path, proto))
