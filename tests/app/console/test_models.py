"""The first view in a real browser: cards that move, a model that failed, a server with keys, one that goes away."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.app.console.browser import Browser
from tests.app.console.conftest import serving
from tests.app.sample_models import FAULTY, elementwise, through, write_model
from tests.patience import PATIENCE_S
from tests.ports import unused_port

pytestmark = pytest.mark.slow

DIGIT = (Path(__file__).parents[3] / "model_store/digits/examples/digit-3-a.png").read_bytes()


def answered(browser: Browser) -> int:
    """Return the number of requests on the card of the digits."""
    return int(re.findall(r"([\d,]+) requests?", browser.text(".model", "digits", "request"))[0].replace(",", ""))


def test_every_model_has_a_card_and_a_failed_one_its_reason(browser: Browser) -> None:
    browser.go("models")
    browser.one(".model.failed", "broken", "my.Unknown")
    assert {each.text for each in browser.all(".model h2")} == {
        "begun",
        "broken",
        "digits",
        "long",
        "shapes",
        "superres",
    }
    browser.one(".model", "digits", "1×1×16×16 float32", "classification", "default")


def test_a_card_counts_requests_as_they_are_answered(browser: Browser, server: str) -> None:
    browser.go("models")
    before = answered(browser)
    for _ in range(3):
        headers = {"content-type": "image/png"}
        assert httpx.post(f"{server}/infer", content=DIGIT, headers=headers, timeout=PATIENCE_S).is_success
    browser.wait(lambda: answered(browser) >= before + 3, "answers that are counted")
    told = browser.text(".model", "digits")
    assert "ms" in told or "µs" in told


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_card_shows_defects_of_the_compiler_in_amber(window: Browser, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    write_model(tmp_path, "twice", through("faulty.Twice", "(1,3)f32"))
    window.scheme(scheme)
    with serving(tmp_path, plugins=tmp_path / "faulty.py", backend="auto", cache=False) as (url, _):
        window.driver.get(f"{url}/#/models")
        shown = window.one(".model .notice.warn", "faulty.Twice op: ZeroDivisionError: a fault of the rule")
        amber = window.script("return getComputedStyle(document.documentElement).getPropertyValue('--warn')").strip()
        red, green, blue = (int(amber[at : at + 2], 16) for at in (1, 3, 5))
        assert shown.value_of_css_property("color") in (
            f"rgb({red}, {green}, {blue})",
            f"rgba({red}, {green}, {blue}, 1)",
        )
        assert window.unfit() == []
    window.complaints()  # the server is gone


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cards_are_fit_for_everybody_in_both_schemes(browser: Browser, scheme: str) -> None:
    browser.scheme(scheme)
    browser.go("models")
    browser.one(".model", "broken")
    assert browser.script("return document.documentElement.dataset.theme") == scheme
    assert browser.unfit() == []


def test_a_phone_shows_cards_below_each_other_and_nothing_beside_its_screen(browser: Browser) -> None:
    browser.size(390, 844)
    browser.go("models")
    browser.one(".model", "digits")
    browser.fits(390)
    assert {round(card.rect["x"]) for card in browser.all(".model")} == {16}


def test_the_page_is_painted_within_a_second_and_asks_for_little(browser: Browser) -> None:
    browser.go("models")
    browser.one(".model", "digits")
    sent = browser.script("return performance.getEntriesByType('resource').map((r) => [r.name, r.transferSize])")
    assert all(name.startswith(browser.url) for name, _ in sent) and sum(size for _, size in sent) < 600_000


def test_a_server_with_keys_is_asked_with_one(window: Browser, tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    port = unused_port()
    with serving(tmp_path, backend="reference", keys="metadata: key-0123456789abcdef", port=port) as (url, child):
        window.driver.get(f"{url}/#/models")
        window.one("[role=dialog] input").send_keys("wrong-0123456789")
        window.click("[role=dialog] button")
        window.one("[role=dialog] [role=alert]")
        window.one("[role=dialog] input").send_keys("key-0123456789abcdef\n")
        window.one(".model", "one")
        window.wait(lambda: "Live" in window.one(".pulse.live").get_attribute("title"), "a server that is live")
        child.terminate()
        child.wait(PATIENCE_S)
        window.one(".pulse.lost")
        assert window.one("main [role=alert]", "Disconnected") and window.all(".model")
        with serving(tmp_path, backend="reference", keys="metadata: key-0123456789abcdef", port=port):
            window.one(".pulse.live")
            window.wait(lambda: not window.all("main [role=alert]"), "the server back")
    window.complaints()  # it was refused, and could not be reached
