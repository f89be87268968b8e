"""Tests of the text printed at the start."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np

from app.process.uvicorn_server import banner, example
from tests.app.client import serving
from tests.app.pictures import png
from tests.app.sample_models import elementwise, through, write_classifier, write_model

URL = "http://127.0.0.1:8000"


def test_every_model_has_a_row(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    write_model(tmp_path, "bad", through("no.Such", "(1,2)f32"))
    write_model(tmp_path, "worse", [], config="x = 1")
    with serving(tmp_path) as client:
        text = banner(client.plane, URL)
    assert re.search(r"\d+ threads? \(cores allowed \d+, cgroup quota .*, setting none\)", text)
    assert re.search(r"  shades +1 +ready +classification +in0 \[1, 1, 2, 2\] float32\n", text)
    assert re.search(r"  bad +1 +failed +tensor +no layer for 1 operator type", text)
    assert re.search(r"  worse +- +failed +tensor +config.toml: x: unknown key", text)
    assert "  not ready  failed to load: bad, worse\n" in text
    assert f"  console    {URL}/\n" in text


def test_the_line_to_try_sends_an_example_picture_of_the_model(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    (tmp_path / "shades" / "examples").mkdir()
    picture = tmp_path / "shades" / "examples" / "it's me.png"
    picture.write_bytes(png())
    with serving(tmp_path) as client:
        words = shlex.split(example(client.plane, URL))
    assert words == [
        "curl", "-s", "--data-binary", f"@{picture}", "-H", "content-type: image/png", f"{URL}/infer"
    ]  # fmt: skip


def test_without_pictures_it_sends_a_small_tensor(tmp_path: Path) -> None:
    write_model(tmp_path, "add", elementwise("add(@0,@1)", "(?,2)f32", "(?,2)f32"))
    write_model(tmp_path, "big", elementwise("add(@0,1)", "(?,2000)f32"))
    with serving(tmp_path) as client:
        words = shlex.split(example(client.plane, URL))
        answer = client.post(words[-1].removeprefix(URL), json=json.loads(words[words.index("-d") + 1]))
    assert words[-1] == f"{URL}/infer?model=add"
    assert np.array_equal(answer.json()["outputs"]["out0"]["data"], [0, 0])


def test_the_default_model_comes_first_and_needs_no_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path, name, elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, default_model="b") as client:
        assert example(client.plane, URL).endswith(f" {URL}/infer")


def test_when_there_is_nothing_to_send_it_lists_the_models(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        assert example(client.plane, URL) == f"curl -s {URL}/models"
        assert "  not ready  the store has no models\n" in banner(client.plane, URL)


def test_a_server_that_asks_for_keys_shows_where_they_go(tmp_path: Path) -> None:
    key = "0123456789abcdef"
    with serving(tmp_path, keys=f"infer: {key}") as client:
        assert example(client.plane, URL) == f"curl -s -H 'authorization: Bearer KEY' {URL}/models"
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, keys=f"infer: {key}") as client:
        words = shlex.split(example(client.plane, URL).replace("KEY", key))
        headers = dict(word.split(": ") for word in words if ": " in word and not word.startswith("{"))
        answer = client.post("/infer", content=words[words.index("-d") + 1], headers=headers)
    assert answer.status_code == 200 and headers["authorization"] == f"Bearer {key}"
