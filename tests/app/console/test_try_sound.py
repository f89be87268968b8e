"""Sounds and pipelines in a real browser: waveforms, spans, the microphone, crops, and text over the picture."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.app.console.browser import Browser, browsing, missing
from tests.app.console.conftest import ROOT, serving
from tests.app.http.test_sound_states import write_sum
from tests.app.picture_models import heads
from tests.app.sample_models import write_model
from tests.app.sound_models import tone, wav, write_bands, write_waves
from tests.patience import PATIENCE_S

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
pytestmark = pytest.mark.slow

DROP = """
const [name, type, data] = arguments;
const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, {type}));
document.querySelector(".drop").dispatchEvent(
  new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: transfer}));
"""
LOUDNESS = ["torch.abs loud 1 1 0 2", "torch.amax most 1 1 2 1 dim=(1) keepdim=True"]
LEVEL = 'task = "vad"\n[sound]\nwindow_s = 0.1\n[vad]\nthreshold = 0.25\nmin_speech_s = 0.15\n'
CARDS = """
[[step]]
name = "card"
model = "shapes"
input = "picture"
[[step]]
name = "digit"
model = "digits"
crop = "card.box"
where = { card.label = "square", card.score = 0.5 }
"""
READER = """
[[step]]
name = "line"
model = "lines"
input = "picture"
[[step]]
name = "text"
model = "reader"
crop = "line.polygon"
"""
# A tone between silences, as a microphone of 16 kHz hears it again and again.
HEARD = np.concatenate([np.zeros(8_000, np.float32), tone(440, 0.8), np.zeros(8_000, np.float32)])


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("sounds")
    store, heard = folder / "store", folder / "heard.wav"
    heard.write_bytes(wav(np.round(HEARD * 32_767).astype(np.int16)))
    for name in ("shapes", "digits"):
        shutil.copytree(ROOT / "model_store" / name, store / name)
    shutil.copytree(ROOT / "examples" / "sounds" / "keywords", store / "keywords")
    write_waves(store, "level", "1600", LOUDNESS, LEVEL)
    write_bands(store, "free")
    write_sum(store, "steps", "window_s = 0.004\n")
    inside = np.pad(np.ones((1, 4, 4), np.float32), ((0, 0), (2, 2), (2, 2)))
    write_model(store, "lines", *heads((32, 32), inside), config='task = "detection"\n[detection]\ndecoder = "dbnet"\n')
    letters = np.float32([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    write_model(store, "reader", *heads((32, 32), letters), config='task = "text-recognition"\nlabels = ["a", "b"]\n')
    for name, text in (("cards", CARDS), ("read", READER)):
        (store / name).mkdir()
        (store / name / "pipeline.toml").write_text(text)
    with serving(store, backend="reference") as (url, _), browsing(url, microphone=heard) as browser:
        browser.size(1280, 900)
        yield browser
        browser.driver.get("about:blank")


@pytest.fixture
def page(there: Browser) -> Iterator[Browser]:
    there.driver.get("about:blank")
    there.complaints()
    yield there
    assert there.complaints() == []


def drop(page: Browser, name: str, content: bytes, kind: str) -> None:
    page.one(".drop")
    page.script(DROP, name, kind, base64.b64encode(content).decode())


def spans(page: Browser) -> list[list[float]]:
    """Start and width of the spans drawn over the waveform, as shares of it."""
    found = [(each.get_attribute("x"), each.get_attribute("width")) for each in page.all(".waveform .span")]
    return [[float(x) / 480, float(width) / 480] for x, width in found]


def test_a_sample_is_classified_and_its_waveform_shown(page: Browser) -> None:
    page.go("try/keywords")
    page.one(".made .answer", "no")
    page.one(".waveform path")
    page.click(".given button", "stop.flac")
    page.one(".made .answer", "stop")
    page.one(".code pre", "audio/flac", "@stop.flac")
    page.click(".code button", "Python")
    page.one(".code pre", 'open("stop.flac", "rb")')


def test_spans_of_speech_lie_over_the_waveform(page: Browser) -> None:
    page.go("try/level")
    drop(page, "tone.wav", wav(HEARD), "audio/wav")
    page.one(".made h2", "1 span of speech in 1.80 s")
    (start, width) = page.wait(lambda: spans(page), "a span")[0]
    assert start == pytest.approx((0.5 - 0.03) / 1.8, abs=0.01)
    assert width == pytest.approx((0.8 + 0.06) / 1.8, abs=0.01)
    drop(page, "notes.txt", b"hello", "text/plain")
    page.one(".given [role=alert]", "notes.txt is not a sound")


def test_a_model_with_states_has_no_activations_of_one_run(page: Browser) -> None:
    page.go("try/steps")
    drop(page, "tone.wav", wav(HEARD), "audio/wav")
    page.one(".made h2", "speech in 1.80 s")
    page.one(".code pre", "@tone.wav")
    assert not page.all(".activations")


def test_the_microphone_is_answered_while_it_is_open(page: Browser) -> None:
    page.go("try/level")
    page.click(".given button", "Microphone")
    page.one(".made .answer", "Speech")
    page.one(".made h2", "1 span of speech")
    page.wait(lambda: spans(page), "a span")
    page.one(".made [role=status]", "Listening")
    assert page.unfit() == []
    page.click(".given button", "Stop")
    page.one(".made [role=status]", "Ended")


def test_a_model_without_windows_gets_what_was_recorded(page: Browser) -> None:
    page.go("try/free")
    page.click(".given button", "Microphone")
    page.wait(lambda: float((page.one(".waveform figcaption").text or "0").split()[0]) > 0.4, "some sound")
    page.click(".given button", "Stop")
    page.one(".made .answer", "band")
    page.one(".code pre", "recording.wav")


def test_each_step_of_a_pipeline_is_shown_with_its_crops(page: Browser) -> None:
    page.go("try/cards")
    drop(page, "cards.png", (ROOT / "docs/images/cards.png").read_bytes(), "image/png")
    page.one(".made .step", "card", "shapes", "square", "digit")
    assert [page.one(f".places li:nth-child({at})").text.split()[-4:-2] for at in (1, 2, 3)] == [
        ["digit", "0"], ["digit", "9"], ["digit", "6"]
    ]  # fmt: skip
    page.wait(lambda: len(page.all(".places .crop image")) == 5, "five crops")
    # The picture has the cards only, with what was read.
    page.one(".boxes text", "square · 0")
    assert len(page.all(".boxes g")) == 3
    page.one(".timing", "inference")
    page.size(390, 844)
    page.fits(390)
    assert page.unfit() == []
    page.size(1280, 900)


def test_text_that_was_read_lies_over_the_picture(page: Browser, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    Image.new("RGB", (32, 32), "grey").save(picture)
    page.go("try/read")
    drop(page, "picture.png", picture.read_bytes(), "image/png")
    page.one(".places .found", "ab")
    written = page.one(".boxes .written text")
    polygon, text = page.one(".boxes polygon").rect, written.rect
    assert written.text == "ab"
    assert abs(text["x"] - polygon["x"]) < 4 and abs(text["width"] - polygon["width"]) < 0.15 * polygon["width"]
    page.click(".over-picture")
    page.wait(lambda: not page.all(".boxes .written"), f"no text within {PATIENCE_S} s")
