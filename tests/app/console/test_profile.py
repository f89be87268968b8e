"""Profiles in a real browser: times, threads and memory as pictures and as tables, on sizes that the user enters."""

from __future__ import annotations

import httpx
import pytest

from tests.app.console.browser import Browser
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_profile_tells_the_time_of_every_kernel_on_the_graph_and_in_a_table(browser: Browser) -> None:
    browser.go("profile/digits")
    browser.one(".tiles", "FLOP/s")
    assert len(browser.all(".kernels tbody tr")) > 5 and browser.one(".node .heat") and browser.all(".lanes .span")
    browser.click(".kernels .link", "convbn2d_1")
    browser.one(".kernels tr.picked")
    browser.one(".node.selected")
    browser.click(".kernels th button", "Operator")
    names = [each.text for each in browser.all(".kernels tbody .link")]
    assert names == sorted(names)
    assert browser.unfit() == []


def test_a_timeline_is_walked_through_by_keys_zoomed_and_read_as_a_table(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.go("profile/digits")
    browser.one(".lanes .span")
    lanes = browser.one(".lanes")
    lanes.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    browser.one(".timeline .reading", "thread 0", "waits")
    # The widest span, since a short one has the same least width before and after zooming.
    browser.script(
        "const width = (span) => span.querySelector('rect').getBoundingClientRect().width;"
        "[...document.querySelectorAll('.lanes .span')].reduce((a, b) => width(b) > width(a) ? b : a)"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    chosen = browser.one(".span.chosen rect").rect["width"]
    lanes.send_keys("+", "+")
    browser.wait(lambda: browser.one(".span.chosen rect").rect["width"] > 2 * chosen, "a span that is wider")
    lanes.send_keys("f")
    browser.wait(lambda: browser.one(".span.chosen rect").rect["width"] < 1.2 * chosen, "the whole run")
    browser.click(".timeline button", "Table")
    assert len(browser.all(".timeline tbody tr")) == len(browser.all(".profile .block > .scroll tbody tr"))


def test_the_picture_of_memory_tells_what_lies_where_and_for_how_long(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.go("profile/digits")
    browser.one(".plan .buffer")
    browser.one(".plan").send_keys(Keys.ARROW_RIGHT)
    browser.one(".arena .reading", "from", "1×24×16×16 float32")
    browser.one(".buffer.chosen")
    browser.one(".plan .peak-name", "peak")
    browser.click(".arena button", "Table")
    assert len(browser.all(".arena tbody tr")) == len(browser.all(".plan .buffer"))


def test_a_model_of_dynamic_sizes_is_measured_on_its_sample_and_on_sizes_that_are_asked_for(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.go("profile/superres")
    browser.one(".lead", "sample chelsea-original.png of 1×3×120×160")
    browser.script(
        "const s = document.querySelector('.sizes select'); s.value = '';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    for place, size in ((2, "20"), (3, "24")):
        field = browser.one(f".sizes [aria-label='Dimension {place} of in0']")
        # Select and type like a user: a field that the driver clears without an event may be filled again by the page.
        field.send_keys(Keys.CONTROL, "a", Keys.NULL, size)
    browser.click(".sizes button", "Run")
    browser.one(".lead", "zeros of 1×3×20×24")
    browser.leads_to("shape=1%2C3%2C20%2C24")


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_a_profile_is_fit_for_everybody(browser: Browser, scheme: str, width: int) -> None:
    browser.scheme(scheme)
    browser.size(width, 844)
    browser.go("profile/digits")
    browser.one(".lanes .span")
    for part in (".timeline", ".arena"):
        browser.click(f"{part} button", "Table")
        browser.one(f"{part} table")
    browser.fits(width)
    assert browser.unfit() == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("shape=1,3,8,9", 200), ("sample=chelsea-original.png", 200), ("sample=..%2fconfig.toml", 404),
        ("shape=x", 400),
        ("shape=1,3,8", 400), ("shape=1,3,8,8&shape=1", 400), ("shape=1,4,8,8", 400), ("shape=1,3,2147483647,9", 413),
        ("shape=1,3,9999999999,9999999999", 413), ("shape=" + "1," * 60 + "1", 400),
    ],
)  # fmt: skip
def test_what_is_measured_is_what_fits_the_model_and_the_memory(server: str, query: str, status: int) -> None:
    answer = httpx.get(f"{server}/models/superres/profile?{query}", timeout=PATIENCE_S)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["input"] == ("zeros" if "shape" in query else "sample chelsea-original.png")
