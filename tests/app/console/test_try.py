"""Trying models in a real browser: samples, files that are dropped, tensors, a sketch, and what is seen inside."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

import engine
from tests.app.console.browser import Browser
from tests.app.console.conftest import ROOT, serving
from tests.app.picture_models import heads, write_segmenter
from tests.app.pictures import npy
from tests.app.sample_models import write_model
from tests.app.text_models import ANSWERS, write_text_model
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

STORE = ROOT / "model_store"
DROP = """
const [selector, name, type, data] = arguments;
const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, {type}));
const zone = document.querySelector(selector);
for (const kind of ["dragover", "drop"]) {
  zone.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: transfer}));
}
"""
DRAW = """
const canvas = document.querySelector(".sketch canvas"), box = canvas.getBoundingClientRect();
canvas.setPointerCapture = () => null;
const send = (kind, y) => canvas.dispatchEvent(
  new PointerEvent(kind, {bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height * y}));
send("pointerdown", 0.15); send("pointermove", 0.5); send("pointermove", 0.85); send("pointerup", 0.85);
"""
MASK = """
const [done] = arguments, mask = document.querySelector(".picture .mask");
mask.decode().then(() => {
  const size = {width: mask.naturalWidth, height: mask.naturalHeight};
  const canvas = Object.assign(document.createElement("canvas"), size);
  const pen = canvas.getContext("2d");
  pen.drawImage(mask, 0, 0);
  const at = (x) => [...pen.getImageData(x, 5, 1, 1).data].slice(0, 3);
  const bars = [...document.querySelectorAll(".bars i")].map((bar) => getComputedStyle(bar).backgroundColor);
  done({mask: [at(2), at(30)], bars: bars.map((colour) => colour.match(/\\d+/g).map(Number).slice(0, 3))});
});
"""


def drop(browser: Browser, path: Path) -> None:
    browser.script(DROP, ".drop", path.name, "image/png", base64.b64encode(path.read_bytes()).decode())


def test_a_sample_is_run_at_once_and_a_file_that_is_dropped_as_well(browser: Browser) -> None:
    browser.go("try/digits")
    browser.one(".answer", "3")
    browser.one(".code pre", "digit-3-a.png", "/models/digits/infer")
    drop(browser, STORE / "digits/examples/digit-7-b.png")
    browser.one(".answer", "7")
    browser.click(".code button", "Python")
    browser.one(".code pre", 'client.infer("digits", "digit-7-b.png")')
    browser.one(".timing", "inference")
    browser.wait(lambda: len(browser.all(".maps img")) == 24, "24 channels")


def test_a_digit_that_is_drawn_is_read(browser: Browser) -> None:
    browser.go("try/digits")
    browser.one(".answer")
    browser.click(".given button", "Draw")
    browser.one(".sketch canvas")
    browser.script(DRAW)
    browser.one(".answer", "1")


def test_masks_key_points_polygons_and_texts_are_shown(browser: Browser, tmp_path: Path) -> None:
    inside = np.pad(np.ones((1, 4, 4), np.float32), ((0, 0), (2, 2), (2, 2)), constant_values=-1)
    row = np.repeat(np.float32([[16], [16], [20], [20], [0.9], [1]]), 12, axis=1)
    points = np.concatenate([row[:5], np.repeat(np.float32([[10], [12], [0.9], [20], [20], [0.1]]), 12, axis=1)])
    letters = np.float32([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    yolo = 'task = "detection"\nlabels = ["cat"]\n[detection]\ndecoder = "yolov8"\n'
    text = 'task = "text-recognition"\nlabels = ["a", "b"]\n'
    models = (
        ("masks", (row, inside), f'{yolo}prototypes = "out1"\n', ".boxes .inside"),
        ("points", (points,), f"{yolo}keypoints = [2, 3]\n", ".boxes circle"),
        ("lines", (inside.clip(0),), 'task = "detection"\n[detection]\ndecoder = "dbnet"\n', ".boxes polygon"),
        ("reader", (letters,), text, ".answer"),
    )
    for name, outputs, config, _ in models:
        write_model(tmp_path / "store", name, *heads((32, 32), *outputs), config=config)
    picture = tmp_path / "picture.png"
    Image.new("RGB", (32, 32), "grey").save(picture)
    with serving(tmp_path / "store", backend="reference") as (url, _):
        for name, _, _, sign in models:
            browser.driver.get(f"{url}/#/try/{name}")
            browser.one(".drop")
            drop(browser, picture)
            assert browser.one(sign) and len(browser.all(sign)) == 1, name
        browser.one(".answer", "ab")
        browser.driver.get("about:blank")


def test_boxes_are_drawn_on_the_picture(browser: Browser) -> None:
    browser.go("try/shapes")
    browser.one(".boxes text")
    assert len(browser.all(".boxes g")) == len(browser.all(".bars li")) > 0


def test_what_was_sent_and_what_was_made_lie_under_one_slider(browser: Browser) -> None:
    browser.go("try/superres")
    browser.one(".compare .before")
    browser.script(
        "const s = document.querySelector('.slide input'); s.value = 10; s.dispatchEvent(new Event('input'))"
    )
    browser.wait(lambda: "90%" in browser.one(".compare .before").get_attribute("style"), "the slider's place")


def test_tensors_come_from_a_form_and_a_refusal_is_shown(browser: Browser) -> None:
    browser.go("try/long")
    browser.click(".given button", "Run")
    browser.one(".output .histogram")
    browser.one(".output", "1×8×12×12")
    browser.click(".code button", "Python")
    browser.one(".code pre", "np.random")


def test_the_same_input_goes_through_other_models_side_by_side(browser: Browser) -> None:
    browser.go("try/digits")
    browser.one(".answer", "3")
    browser.click(".beside button", "shapes v1")
    browser.wait(lambda: len(browser.all(".beside tbody td i")) == 2, "two answers")
    browser.one(".beside tbody", "different outputs")
    browser.click(".beside button", "shapes v1")
    browser.wait(lambda: not browser.all(".beside table"), "nothing to compare")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_trying_is_fit_for_everybody(browser: Browser, scheme: str, width: int) -> None:
    browser.scheme(scheme)
    browser.size(width, 844)
    browser.go("try/digits")
    browser.one(".answer", "3")
    browser.one(".maps img")
    browser.fits(width)
    assert browser.unfit() == []


def test_what_is_seen_inside_is_what_the_engine_has_there(server: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 16, 16)).astype(np.float32)
    url = f"{server}/models/digits/graph/operand"
    told = httpx.post(
        f"{url}?operand=2", content=npy(x), headers={"content-type": "application/x-npy"}, timeout=PATIENCE_S
    )
    session = engine.Session(engine.load(STORE / "digits/1/model.pnnx.param"), backend="reference")
    value = session.run([x], taps=["2"]).taps["2"]
    assert told.json()["shape"] == list(value.shape) and np.isclose(told.json()["mean"], value.mean())
    assert np.allclose(told.json()["first"], value.ravel()[:64], atol=1e-5) and len(told.json()["pictures"]) == 24
    for name in ("in0", "out0"):
        named = httpx.post(
            f"{url}?operand={name}", content=npy(x), headers={"content-type": "application/x-npy"}, timeout=PATIENCE_S
        ).json()
        assert named["shape"] == ([1, 1, 16, 16] if name == "in0" else [1, 10])
    for query, status in (("operand=nothing", 404), ("", 400), ("operand=2&version=9", 404)):
        assert httpx.post(f"{url}?{query}", content=npy(x), timeout=PATIENCE_S).status_code == status
    assert httpx.post(f"{url}?operand=2", content=b"{", timeout=PATIENCE_S).status_code == 400
    assert httpx.post(f"{url}?operand=2", content=npy(x[:, :, :3]), timeout=PATIENCE_S).status_code == 422


def test_samples_are_those_of_the_folder_and_no_other_file_is_told(server: str) -> None:
    url = f"{server}/models/digits/samples"
    listed = [each["name"] for each in httpx.get(url, timeout=PATIENCE_S).json()["samples"]]
    assert listed == sorted(path.name for path in (STORE / "digits/examples").iterdir())
    found = httpx.get(f"{url}/{listed[0]}", timeout=PATIENCE_S)
    assert found.content == (STORE / "digits/examples" / listed[0]).read_bytes()
    assert found.headers["content-type"] == "image/png"
    for name in ("..%2fconfig.toml", "config.toml", "%2e%2e%2f1%2fmodel.pnnx.param", "nothing.png"):
        assert httpx.get(f"{url}/{name}", timeout=PATIENCE_S).status_code in (404, 405)
    assert httpx.get(f"{server}/models/long/samples", timeout=PATIENCE_S).json() == {"samples": []}


def test_areas_lie_on_the_picture_as_a_mask_and_a_server_that_goes_away_is_told(
    window: Browser, tmp_path: Path
) -> None:
    write_segmenter(tmp_path)
    (tmp_path / "colours" / "examples").mkdir()
    halves = np.zeros((12, 32, 3), np.uint8)
    halves[:, :16, 0] = halves[:, 16:, 2] = 255
    Image.fromarray(halves).save(tmp_path / "colours" / "examples" / "halves.png")
    with serving(tmp_path, backend="reference") as (url, child):
        window.size(390, 844)
        window.driver.get(f"{url}/#/try/colours")
        window.one(".bars", "red", "50 %")
        window.one(".picture .mask")
        shown = window.driver.execute_async_script(MASK)
        # As the bars have them; on what is no area, and the picture itself, nothing lies.
        assert shown["mask"][0] == shown["bars"][0] and shown["mask"][1] == shown["bars"][1]
        window.fits(390)
        assert window.unfit() == []
        child.terminate()
        child.wait(PATIENCE_S)
        window.click(".given .thumb")
        window.one(".made [role=alert]", "cannot be reached")
        window.one(".pulse.lost")
    window.complaints()  # it could not be reached


def test_texts_are_sent_and_their_similarity_and_spans_are_shown(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra text")
    for task in ("embedding", "token-classification"):
        write_text_model(tmp_path, task, "[text]\nmax_tokens = 64\n")
    with serving(tmp_path, backend="reference") as (url, _):
        there = Browser(browser.driver, url)
        there.go("try/embedding")
        there.click(".given .primary")
        there.one(".made h2", "3 × 16 values")
        assert len(there.all(".made .bars li")) == 2
        there.one(".code pre", '"A cat sits on the mat."')
        found = httpx.post(f"{url}/tokenize", json={"model": "embedding", "inputs": "A cat sits on the mat."}).json()[0]
        shown = [each.text.split("\n") for each in there.all(".tokens ol:first-of-type li")]
        expected = [
            [each["text"], str(each["id"]), *([] if each["special"] else [f"{each['start']}–{each['stop']}"])]
            for each in found
        ]
        assert len(there.all(".tokens ol")) == 3 and shown == expected
        there.fits(1280)
        assert there.unfit() == []
        there.go("try/token-classification")
        there.click(".given .primary")
        there.one(".made .marked mark")
        sentence = "".join(there.script("return [...document.querySelector('.marked').childNodes].map((each) => "
                                        "each.nodeName === 'MARK' ? each.firstChild.data : each.data)"))  # fmt: skip
        assert sentence.strip() == ANSWERS["sentences"][0]
        browser.driver.get("about:blank")  # before the server ends
