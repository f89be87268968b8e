"""Pipelines that cannot be served, and the reasons that users get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.client import Client, serving
from tests.app.pipelines.conftest import write_pipeline
from tests.app.sample_models import elementwise, through, write_classifier, write_detector, write_model
from tests.app.text_models import write_text_model

FIND = '[[step]]\nname = "find"\nmodel = "boxes"\ninput = "picture"\n'


def step(name: str, model: str, rest: str) -> str:
    return f'[[step]]\nname = "{name}"\nmodel = "{model}"\n{rest}\n'


REFUSED = {
    "empty": ("", "step: missing"),
    "no-steps": ("step = []", "step: expected"),
    "bad-toml": ("[[step]", "pipeline.toml: Expected"),
    "unknown-key": (step("a", "shades", 'input = "x"\ncorp = "y"'), "step 'a': corp: unknown key (did you mean"),
    "unknown-table": (FIND + "[labels]\n", "labels: unknown key"),
    "bad-name": (step("a.b", "shades", 'input = "x"'), "step 'a.b': name: found 'a.b', expected letters, digits"),
    "no-input": (step("a", "shades", ""), "found neither input nor crop, expected one"),
    "both-inputs": (FIND + step("a", "shades", 'input = "x"\ncrop = "find.box"'), "found both input and crop"),
    "margin-alone": (step("a", "shades", 'input = "x"\nmargin = 0.5'), "margin and turn: expected with crop only"),
    "many-items": (f"max_items = 100000\n{FIND}", "max_items: expected at most 1000"),
    "many-steps": ("".join(step(f"s{at}", "shades", 'input = "x"') for at in range(33)), "step: expected at most 32"),
    "missing-model": (step("a", "shade", 'input = "x"'), "step 'a': no model 'shade' (did you mean 'shades'?)"),
    "missing-version": (step("a", "shades:3", 'input = "x"'), "step 'a': model 'shades' has no version 3"),
    "missing-tag": (step("a", "shades:new", 'input = "x"'), "step 'a': model 'shades' has no tag 'new'"),
    "failed-model": (step("a", "broken", 'input = "x"'), "step 'a': model 'broken' failed to load"),
    "cycle": (step("a", "cycle", 'input = "x"'), "found 'cycle' -> 'cycle', expected no pipeline that contains itself"),
    "ring-a": (step("a", "ring-b", 'input = "x"'), "'ring-a' -> 'ring-b' -> 'ring-a'"),
    "ring-b": (step("a", "ring-a", 'input = "x"'), "'ring-b' -> 'ring-a' -> 'ring-b'"),
    "twice": (FIND + FIND, "step 'find': found a second step of this name"),
    "unknown-step": (FIND + step("a", "shades", 'crop = "fnd.box"'), "unknown step 'fnd' (did you mean 'find'?)"),
    "later-step": (step("a", "shades", 'crop = "find.box"') + FIND, "found step 'find', which does not come before"),
    "own-step": (FIND + step("a", "shades", 'crop = "a.box"'), "found step 'a', which does not come before this one"),
    "step-as-input": (FIND + step("a", "shades", 'input = "find"'), "found 'find', which is a step, expected"),
    "unknown-field": (
        FIND + step("a", "minilm", 'input = "find.labl"'), "found 'find.labl' (did you mean 'label'?), expected one of"
    ),
    "wrong-field": (FIND + step("a", "minilm", 'input = "find.score"'), "found 'find.score', expected a text"),
    "crop-of-classes": (
        step("kind", "shades", 'input = "x"') + step("a", "shades", 'crop = "kind.box"'),
        "crop: found 'kind.box', expected one of 'kind.label'",
    ),
    "crop-of-label": (FIND + step("a", "shades", 'crop = "find.label"'), "expected STEP.box, STEP.polygon"),
    "crop-of-tensor": (
        step("add", "one", 'input = "x"') + step("a", "shades", 'crop = "add.box"'),
        "crop: found 'add.box', but the model of step 'add' has no predictions",
    ),
    "crop-for-tensors": (FIND + step("a", "one", 'crop = "find.box"'), "crop: model 'one' takes no pictures"),
    "crop-of-pipeline": (
        step("inner", "good", 'input = "picture"') + step("a", "shades", 'crop = "inner.box"'),
        "step 'inner' is a pipeline, whose predictions no step reads",
    ),
    "other-dtype": (
        step("a", "one", 'input = "x"') + step("b", "ints", 'input = "a.outputs.out0"'),
        "found 'a.outputs.out0' ([?, 3] float32), expected [?, 3] int64 for input 'in0'",
    ),
    "other-size": (
        step("a", "one", 'input = "x"') + step("b", "two", 'input = "a.outputs.out0"'), "expected [?, 2] float32"
    ),
    "unknown-output": (
        step("a", "one", 'input = "x"') + step("b", "one", 'input = "a.outputs.out9"'),
        "expected one of 'a.outputs.out0'",
    ),
    "one-for-two": (step("a", "add", 'input = "x"'), "found one value, expected a table with each of 'in0', 'in1'"),
    "missing-input": (step("a", "add", 'input = { in0 = "x" }'), "missing 'in1', which model 'add' needs"),
    "unknown-input": (step("a", "one", 'input = { in0 = "x", in7 = "y" }'), "found 'in7', expected each of 'in0' once"),
    "bad-constant": (
        step("a", "add", 'input = { in0 = "x", in1 = [1, 2, 3] }'),
        "found a constant of shape [3] for 'in1', expected [?, 2] float32",
    ),
    "constants-only": (step("a", "add", "input = { in0 = [1, 2], in1 = [1, 2] }"), "no step takes an input of the"),
    "two-pictures": (
        step("a", "shades", 'input = "left"') + step("b", "shades", 'input = "right"'),
        "found 2 inputs that take a picture: 'left', 'right', expected one",
    ),
    "picture-and-text": (
        step("a", "shades", 'input = "x"') + step("b", "minilm", 'input = "x"'),
        "found 'x' as a text, but an earlier step takes a picture of it",
    ),
    "unused": (
        step("a", "one", 'input = "x"') + step("b", "one", 'input = "x"'),
        "step 'a': it is not used: its model has no predictions, and no later step reads its outputs",
    ),
    "crop-without-polygon": (
        FIND + step("a", "shades", 'crop = "find.polygon"'), "crop: found 'find.polygon', expected one of 'find.label'"
    ),
    "vector-for-picture": (
        FIND + step("a", "shades", 'input = "find.box"'), "found 'find.box', a list of numbers for each item, expected"
    ),
    "number-for-text": (
        FIND + step("a", "shades", 'crop = "find.box"\nwhere = { find.label = 3 }'),
        "where: find.label: found 3.0, expected a text or a list of texts",
    ),
    "text-for-number": (
        FIND + step("a", "shades", 'crop = "find.box"\nwhere = { find.score = "0.5" }'),
        "where: find.score: found '0.5', expected a number",
    ),
    "no-labels": (
        FIND + step("a", "shades", 'crop = "find.box"\nwhere = { find.label = [] }'),
        "where: find.label: found none, expected a text or a list of texts",
    ),
    "condition-on-list": (
        FIND + step("a", "shades", 'crop = "find.box"\nwhere = { find.box = 3 }'),
        "where: find.box: found a condition on a list, expected a field with a number or a text",
    ),
    "unknown-label": (
        step("kind", "shades", 'input = "x"') + step("a", "shades", 'input = "x"\nwhere = { kind.label = "lefd" }'),
        "where: kind.label: found 'lefd' (did you mean 'left'?), expected one of 'left', 'right', 'below'",
    ),
    "replaces-field": (FIND + step("score", "shades", 'crop = "find.box"'), "'score' is a field of the predictions"),
    "bad-parameter": (step("a", "shades", 'input = "x"\nparameters = { top = 1 }'), "parameters: unknown parameter"),
    "bad-where": (
        FIND + step("a", "shades", 'crop = "find.box"\nwhere = { find.size = 1 }'), "where: found 'find.size', expected"
    ),
    "where-of-others": (
        FIND
        + step("a", "shades", 'crop = "find.box"')
        + step("b", "minilm", 'input = "t"\nwhere = { a.label = "left" }'),
        "where: found 'a.label', which belongs to other items than this step",
    ),
    "mixed-items": (
        FIND + step("a", "shades", 'crop = "find.box"')
        + step("b", "pair", 'input = { in0 = "x", in1 = "a.outputs.out0" }'),
        "which belong to different items, expected values of one item",
    ),
    "turn-by-other": (
        FIND + step("kind", "shades", 'input = "picture"') + step("a", "shades", 'crop = "find.box"\nturn = "kind"'),
        "turn: found step 'kind', expected a step with crop = 'find.box'",
    ),
    "turn-labels": (
        FIND + step("kind", "shades", 'crop = "find.box"') + step("a", "shades", 'crop = "find.box"\nturn = "kind"'),
        "turn: the labels of step 'kind' are 'left', 'right', 'below', expected '0', '90', '180', '270'",
    ),
    "default-as-text": ('default = "yes"\n' + FIND, "default: expected true or false, found 'yes'"),
    "items-as-text": ('max_items = "5"\n' + FIND, "max_items: expected a whole number, found '5'"),
    "margin-as-text": (
        FIND + step("a", "shades", 'crop = "find.box"\nmargin = "0.5"'), "margin: expected a number, found '0.5'"
    ),
    "deep-5": (step("a", "deep-4", 'input = "picture"'), "expected at most 4 pipelines in each other"),
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("refused")
    write_classifier(store)
    write_detector(store)
    write_text_model(store, "embedding", name="minilm")
    write_model(store, "one", elementwise("add(@0,1)", "(?,3)f32"))
    write_model(store, "two", elementwise("add(@0,1)", "(?,2)f32"))
    write_model(store, "ints", elementwise("add(@0,1)", "(?,3)i64"))
    write_model(store, "add", elementwise("add(@0,@1)", "(?,2)f32", "(?,2)f32"))
    write_model(store, "pair", elementwise("add(@0,@1)", "(?,3)f32", "(?,3)f32"))
    write_model(store, "broken", through("no.Such", "(1,3)f32"))
    write_pipeline(store, "good", FIND + step("kind", "shades", 'crop = "find.box"'))
    write_pipeline(store, "deep-1", step("a", "good", 'input = "picture"'))
    for depth in (2, 3, 4):
        write_pipeline(store, f"deep-{depth}", step("a", f"deep-{depth - 1}", 'input = "picture"'))
    for name, (text, _) in REFUSED.items():
        write_pipeline(store, name, text)
    for name in ("with-version", "with-config"):
        write_pipeline(store, name, FIND)
    (store / "with-version" / "1").mkdir()
    (store / "with-config" / "config.toml").write_text("default = true")
    write_pipeline(store, "deep-toml", "a = " + "[" * 100_000)
    write_pipeline(store, "huge", "#" * (2**20 + 1))
    (store / "linked").mkdir()
    (store / "linked" / "pipeline.toml").symlink_to("/etc/passwd")
    with serving(store, warmup=False) as client:
        yield client


def reason(client: Client, name: str) -> str:
    row = client.get(f"/models/{name}").json()
    assert row["state"] == "failed", row
    return str(row["reason"])


@pytest.mark.parametrize("name", REFUSED)
def test_the_reason_says_where_and_what_was_expected(client: Client, name: str) -> None:
    assert REFUSED[name][1] in reason(client, name)


def test_an_invalid_step_is_not_reported_as_missing(client: Client) -> None:
    assert "at least 1 values" not in reason(client, "no-input")


@pytest.mark.parametrize("name", ["with-version", "with-config"])
def test_a_pipeline_has_no_model_of_its_own(client: Client, name: str) -> None:
    assert "found both pipeline.toml and" in reason(client, name)


@pytest.mark.parametrize("name", ["deep-toml", "huge", "linked"])
def test_a_hostile_file_is_refused(client: Client, name: str) -> None:
    assert "root:" not in reason(client, name)


@pytest.mark.parametrize("name", ["good", "deep-1", "deep-2", "deep-3"])
def test_pipelines_in_pipelines_are_served(client: Client, name: str) -> None:
    assert client.get(f"/models/{name}").json()["state"] == "ready"


def test_requests_to_a_refused_pipeline_get_the_reason(client: Client) -> None:
    response = client.infer("cycle", [[1]])
    assert response.status_code == 503 and "contains itself" in response.json()["error"]["message"]
