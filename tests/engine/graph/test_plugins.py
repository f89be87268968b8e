"""Layers of users: whatever they declare, announce, return or raise, an answer or an error that names the operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest

import engine
from engine import EngineError, TensorSpec, registry
from engine.tensor import UNKNOWN
from tests.engine.graph.build import F32, INPUT, built, op

X = np.arange(3, dtype=F32).reshape(1, 3) - 1
TWO = np.concatenate([X, X + 1])


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with registry.extended():
        yield


def layer(forward: object = None, fields: dict[str, Any] | None = None, **members: Any) -> type[engine.Layer]:
    given = {} if forward is None else {"forward": forward}
    space = {"__annotations__": fields or {}, "__module__": __name__, **given, **members}
    return type("Mine", (engine.Layer,), space)


def graph(cls: type[engine.Layer], outputs: int = 1, inputs: int = 1, annotated: bool = True, **given: Any) -> Any:
    engine.register("my.Op")(cls)
    names = [str(9 + k) for k in range(outputs)]
    return built(
        INPUT,
        op("my.Op", "mine", " ".join(["0"] * inputs), " ".join(names), **given),
        op("nn.ReLU", "relu", "9", "30"),
        op("pnnx.Output", "out", "30"),
        *(op("pnnx.Output", f"out{name}", name) for name in names[1:]),
        _0=(1, 3),
        **({f"_{name}": (1, 3) for name in names} if annotated else {}),
    )


def everything(model: engine.RuntimeGraph, backend: Any) -> list[object]:
    """Return the result of each use of a session, errors of the engine included; any other exception is a failure."""
    session = engine.Session(model, backend=backend, cache=None)
    calls: list[Callable[[], object]] = [
        lambda: session.run(X),
        lambda: json.dumps(session.describe()),
        lambda: session.run(TWO),
        lambda: session.run(X, profile=True),
        lambda: session.run(X, taps=["9"]),
        lambda: session.prepare(2),
    ]
    found: list[object] = []
    for call in calls:
        try:
            found.append(call())
        except EngineError as error:
            found.append(error)
    return found


def pair(self: object, x: Any) -> Any:
    return x * 2, x + 1


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("annotated", [True, False])
def test_two_results_without_infer_are_answered_at_any_batch(backend: Any, annotated: bool) -> None:
    model = graph(layer(pair), 2, annotated=annotated)
    once, text, twice, profiled, tapped, _ = everything(model, backend)
    for x, answer in ((X, once), (TWO, twice), (X, profiled), (X, tapped)):
        assert isinstance(answer, list), answer
        np.testing.assert_array_equal(answer[0], np.maximum(x * 2, 0))
        np.testing.assert_array_equal(answer[1], x + 1)
    assert "my.Op" in str(text)


RETURNED: dict[str, tuple[Callable[..., Any], int]] = {
    "None": (lambda self, x: None, 1),
    "a word": (lambda self, x: "abc", 1),
    "an object": (lambda self, x: object(), 1),
    "a generator": (lambda self, x: (y for y in (x, x)), 2),
    "a dict": (lambda self, x: {"a": x}, 2),
    "one for two": (lambda self, x: x, 2),
    "three for two": (lambda self, x: (x, x, x), 2),
    "two for one": (lambda self, x: (x, x), 1),
    "objects": (lambda self, x: np.array([None]), 1),
    "words": (lambda self, x: np.array(["a"]), 1),
    "days": (lambda self, x: np.array(["2020-01-01"], "M8[D]"), 1),
    "records": (lambda self, x: np.zeros(2, [("a", "f4")]), 1),
    "a masked array": (lambda self, x: np.ma.masked_array(x, x > 0), 1),
    "a spec": (lambda self, x: TensorSpec((1, 3), F32), 1),
    "80-bit numbers": (lambda self, x: x.astype(np.longdouble), 1),
}


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(("forward", "outputs"), RETURNED.values(), ids=RETURNED)
def test_what_is_no_tensor_is_an_error_that_names_the_operator(
    forward: Callable[..., Any], outputs: int, backend: Any
) -> None:
    first = everything(graph(layer(forward), outputs), backend)[0]
    assert isinstance(first, EngineError)
    assert "mine (my.Op)" in str(first)


ACCEPTED: dict[str, Callable[..., Any]] = {
    "a tuple of one": lambda self, x: (x,),
    "a record array": lambda self, x: x.view(np.recarray),
    "the other byte order": lambda self, x: x.astype(">f4"),
    "its operand": lambda self, x: x,
    "a view of its operand": lambda self, x: x[:, :],
    "another method": staticmethod(lambda x: x),  # type: ignore[dict-item]
    "any number of operands": lambda self, *x: x[0],
    "an operand by name": lambda self, *, x: x,
    "more by name": lambda self, x, **others: x,
}


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("forward", ACCEPTED.values(), ids=ACCEPTED)
def test_what_can_be_meant_is_answered(forward: Callable[..., Any], backend: Any) -> None:
    answers = everything(graph(layer(forward)), backend)
    for x, answer in ((X, answers[0]), (TWO, answers[2])):
        assert isinstance(answer, list), answer
        np.testing.assert_array_equal(answer[0], np.maximum(x, 0))


RAISED = (TypeError, MemoryError, RecursionError, KeyError, StopIteration, AssertionError, SystemExit, GeneratorExit)


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("method", ["forward", "infer", "flops", "scratch_bytes", "__post_init__"])
def test_whatever_a_layer_raises_stays_the_operators(error: type[BaseException], method: str) -> None:
    def fail(self: object, *args: object) -> None:
        raise error("boom")

    if method == "__post_init__" and not issubclass(error, Exception):
        pytest.skip("a constructor that ends the program does")
    try:
        answers = everything(graph(layer(**{"forward": lambda self, x: x, method: fail})), "auto")
    except EngineError as refused:
        answers = [refused]
    found = [str(answer) for answer in answers if isinstance(answer, EngineError)]
    assert method not in ("forward", "infer", "__post_init__") or found
    assert all("mine (my.Op)" in text for text in found if "does not take other batch sizes" not in text)


SPEC = TensorSpec((1, 3), F32)
WRONG_SPECS: dict[str, object] = {
    "None": None,
    "a word": "x",
    "an array": X,
    "a dtype": F32,
    "negative": TensorSpec((-1, 3), F32),
    "fractional": TensorSpec((1.5, 3), F32),  # type: ignore[arg-type]
    "truth": TensorSpec((True, 3), F32),
    "huge": TensorSpec((10**30, 3), F32),
    "no dtype": TensorSpec((1, 3), None),  # type: ignore[arg-type]
    "objects": TensorSpec((1, 3), np.dtype(object)),
    "no shape": TensorSpec(3, F32),  # type: ignore[arg-type]
    "two": (SPEC, SPEC),
}


@pytest.mark.parametrize("spec", WRONG_SPECS.values(), ids=WRONG_SPECS)
def test_an_infer_that_announces_nothing_possible_is_refused(spec: object) -> None:
    cls = layer(lambda self, x: x, infer=lambda self, x: spec)
    try:
        answers = everything(graph(cls), "auto")
    except EngineError as refused:
        assert "mine (my.Op)" in str(refused)
    else:
        assert isinstance(answers[0], EngineError), answers[0]


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(
    "spec", [TensorSpec((1, 4), F32), TensorSpec((3,), F32), TensorSpec((1, 3), np.dtype(np.int64)), 5]
)
def test_a_forward_that_breaks_what_infer_promised_is_named_or_not_asked(spec: Any, backend: Any) -> None:
    first = everything(graph(layer(lambda self, x: x, infer=lambda self, x: spec), annotated=False), backend)[0]
    assert isinstance(spec, int) or (isinstance(first, EngineError) and "and infer returned different" in str(first))


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_without_infer_the_files_shape_is_that_of_one_run_only(backend: Any) -> None:
    """The file says [1, 3]; another input gives other rows, and is answered all the same."""
    answers = graph(layer(lambda self, x: x[:, : int(x.sum())]))
    session = engine.Session(answers, backend=backend, cache=None)
    for total in (3, 1, 2):
        x = np.array([[total, 0, 0]], F32)
        np.testing.assert_array_equal(session.run(x)[0], x[:, :total])


FIELDS: dict[str, tuple[Any, object, object]] = {
    "list[int]": (list[int], (1, 2), [1, 2]),
    "list[float] of ints": (list[float], (1, 2), [1.0, 2.0]),
    "one item of a list": (list[int], 7, [7]),
    "no item": (list[int], None, []),
    "tuple of two": (tuple[int, int], (1, 2), (1, 2)),
    "tuple of a number and a word": (tuple[int, str], (1, "a"), (1, "a")),
    "optional list": (list[int] | None, None, None),
    "number or list": (int | list[int], (1, 2), [1, 2]),
    "number for number or list": (int | list[int], 3, 3),
    "list of words": (list[str], ("a", "b"), ["a", "b"]),
    "plain list": (list, (1, "a"), [1, "a"]),
    "plain tuple": (tuple, (1, "a"), (1, "a")),
    "literal": (Literal["a", "b"], "a", "a"),
    "literal number": (Literal[1, 2], 2, 2),
    "anything": (Any, (1, 2), (1, 2)),
    "object": (object, 5, 5),
    "float of an int": (float, 1, 1.0),
}


@pytest.mark.parametrize(("kind", "given", "expected"), FIELDS.values(), ids=FIELDS)
def test_parameters_of_every_kind_arrive_as_declared(kind: Any, given: object, expected: object) -> None:
    seen = []
    cls = layer(lambda self, x: seen.append(self.p) or x, {"p": kind})
    assert isinstance(everything(graph(cls, p=given), "auto")[0], list)
    assert seen[0] == expected
    assert type(seen[0]) is type(expected)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (list[int], ("a",), "parameter 'p': wrong kind of value: found ['a'], expected list of int"),
        (
            tuple[int, int],
            (1, 2, 3),
            "parameter 'p': wrong kind of value: found [1, 2, 3], expected list of 2: int, int",
        ),
        (Literal["a", "b"], "c", "unknown p: found c, expected a or b"),
        (list[int] | None, "x", "parameter 'p': wrong kind of value: found 'x', expected list of int or None"),
    ],
)
def test_parameters_of_another_kind_are_refused(kind: Any, given: object, expected: str) -> None:
    with pytest.raises(engine.ParameterError) as caught:
        graph(layer(lambda self, x: x, {"p": kind}), p=given)
    assert str(caught.value) == f"mine (my.Op): {expected}"


@pytest.mark.parametrize("kind", [dict[str, int], set[int], np.ndarray, Callable, "Nowhere", list[dict[str, int]]])
def test_a_layer_no_file_can_feed_is_refused_when_it_is_registered(kind: Any) -> None:
    with pytest.raises(engine.ParameterError, match=r"my\.Op"):
        engine.register("my.Op")(layer(lambda self, x: x, {"p": kind}))


@pytest.mark.parametrize("forward", [None, 5])
def test_a_layer_without_forward_is_refused_when_it_is_registered(forward: object) -> None:
    with pytest.raises(engine.ParameterError, match=r"my\.Op: .*'forward'"):
        engine.register("my.Op")(layer(forward))


def weighted(self: object, x: Any, *others: Any, scale: Any = 1, w: Any) -> Any:
    return x + sum(others) * scale * w


@pytest.mark.parametrize("inputs", [1, 2, 4])
def test_operands_before_and_behind_the_star_find_their_places(inputs: int) -> None:
    w = np.array([1, 2, 3], F32)
    answer = everything(graph(layer(weighted), inputs=inputs, w=w), "auto")[0]
    assert isinstance(answer, list), answer
    np.testing.assert_array_equal(answer[0], np.maximum(X + (inputs - 1) * X * w, 0))


def test_too_few_and_too_many_operands_are_counted() -> None:
    with pytest.raises(engine.ParameterError, match="operand 'y' is missing: found 1 operands"):
        graph(layer(lambda self, x, y: x))
    with (
        registry.extended(),
        pytest.raises(engine.ParameterError, match="too many operands: found 3, expected at most"),
    ):
        registry._signatures.pop("my.Op")
        graph(layer(lambda self, x, y: x), inputs=3)


def test_an_unknown_announcement_is_no_promise() -> None:
    answers = everything(graph(layer(pair, infer=lambda self, x: UNKNOWN), 2), "auto")
    assert all(isinstance(answers[k], list) for k in (0, 2, 3))


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_layer_that_takes_no_dynamic_size_is_run_item_by_item(backend: Any) -> None:
    def infer(self: object, x: TensorSpec) -> TensorSpec:
        if x.shape[0] is None:
            raise engine.ParameterError("a batch is needed")
        return x

    model = graph(layer(lambda self, x: x * 2, infer=infer))
    session = engine.Session(model, backend=backend, cache=None)
    np.testing.assert_array_equal(session.run(TWO)[0], np.maximum(TWO * 2, 0))
    assert session.describe()["batch"]["mode"] == "split"
    assert "a batch is needed" in session.describe()["batch"]["reason"]
