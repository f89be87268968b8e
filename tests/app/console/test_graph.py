"""The graph in a real browser: it fits, unfolds, is searched and walked through, and tells what an operator is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.console.browser import Browser

pytestmark = pytest.mark.slow


def test_a_long_graph_fits_the_window_and_unfolds(browser: Browser) -> None:
    browser.go("graph/long")
    browser.one(".node.fold", "100 ×")
    plane = browser.one(".canvas").rect
    for node in browser.all(".node"):
        assert plane["y"] <= node.rect["y"] and node.rect["y"] + node.rect["height"] <= plane["y"] + plane["height"]
    browser.script("document.querySelector('.node.fold .plus').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.one(".frame")
    browser.click(".bar button", "Unfold all")
    browser.one(".bar button", "Fold")
    assert len(browser.all(".minimap .fill")) > 100
    browser.click(".bar .segmented button", "As exported")
    browser.one(".node.fold", "100 × residual block")
    browser.click(".bar button", "Unfold all")
    browser.wait(lambda: len(browser.all(".minimap .fill")) == 302, "every operator by itself")
    browser.leads_to("passes=before")


def test_an_operator_is_found_by_name_and_tells_what_it_is(browser: Browser) -> None:
    browser.go("graph/digits")
    browser.one(".node", "nn.Conv2d")
    browser.one(".search input").send_keys("convbn2d_1\n")
    side = browser.one(".side", "convbn2d_1")
    assert "kernel_size" in side.text and "(3, 3)" in side.text and "24×24×3×3" in side.text.replace(" ", "")
    browser.leads_to("op=convbn2d_1")
    browser.click(".attribute summary", "weight")
    browser.one(".histogram svg")
    browser.one(".attribute[open]", "mean")
    browser.click(".side .close")
    browser.wait(lambda: not browser.all(".side"), "a side that is shut")


# Names and types of operators come when the page is told to have them: a drawing of a large model is there before.
LATER = """
const fetched = window.fetch, comes = new Promise((resolve) => { window.come = resolve; });
window.fetch = async (url, ...more) => {
  if (/\\/graph$/.test(url)) await comes;
  return fetched(url, ...more);
};
"""


@pytest.fixture
def late(browser: Browser) -> Iterator[Browser]:
    """A browser whose pages wait with asking for that until ``come`` is called."""
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LATER})
    yield browser
    browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_who_searches_before_there_is_anything_to_search_in_is_led_there_when_there_is(late: Browser) -> None:
    late.go("graph/long")
    late.one(".node.fold", "100 ×")
    late.one(".search input").send_keys("stage3.7.pool\n")
    assert not late.all(".frame")
    late.script("window.come()")
    late.one(".node.operator.selected", "MaxPool2d")
    late.leads_to("op=stage3.7.pool")


def test_what_is_picked_before_it_has_a_name_is_selected(late: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    late.go("graph/long")
    late.one(".node.fold", "100 ×")
    late.one(".plane").send_keys(Keys.ARROW_DOWN)
    late.one(".node.operator.selected, .node.pill.selected", "in0")
    late.script("window.come()")
    late.one(".side", "in0")
    late.leads_to("op=in0")


def test_what_is_found_in_a_block_unfolds_it_and_a_block_folds_again(browser: Browser) -> None:
    browser.go("graph/long")
    browser.one(".node.fold", "100 ×")
    browser.one(".search input").send_keys("stage3.7.pool\n")
    browser.one(".node.operator.selected", "MaxPool2d")
    assert len(browser.all(".frame .plus")) == 2
    fold = "document.querySelector('.frame .plus').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    browser.script(fold)
    browser.wait(lambda: not browser.all(".frame"), "all folded")
    browser.go("graph/long?op=stage3.7.relu")
    browser.one(".node.operator.selected", "ReLU")


def test_blocks_are_modules_where_names_tell_them(browser: Browser) -> None:
    browser.go("graph/long")
    browser.click(".bar button", "By module")
    browser.one(".node.fold", "stage4")
    browser.leads_to("by=modules")
    browser.click(".bar button", "Unfold all")
    browser.one(".bar button", "Fold")
    browser.click(".bar button", "By structure")
    browser.one(".node.fold", "100 ×")


def test_a_block_unfolds_where_one_comes_close_and_folds_again_far_away(browser: Browser) -> None:
    wheel = """
    const [sign] = arguments, box = document.querySelector(".node.fold, .frame").getBoundingClientRect();
    const [x, y] = [box.left + Math.min(box.width, innerWidth) / 2, Math.max(150, box.top) + 20];
    const event = {clientX: x, clientY: y, deltaY: sign * 400, bubbles: true, cancelable: true};
    document.querySelector(".plane").dispatchEvent(new WheelEvent("wheel", event));
    """
    browser.go("graph/long")
    browser.one(".node.fold", "100 ×")
    browser.script(wheel, -1)
    browser.one(".frame")
    for _ in range(4):
        browser.script(wheel, 1)
    browser.wait(lambda: not browser.all(".frame"), "a block that is folded again")


@pytest.mark.parametrize("name", ["shapes", "long"])
def test_what_is_seen_at_first_fits_the_window_and_can_be_read(browser: Browser, name: str) -> None:
    browser.go(f"graph/{name}")
    browser.one(".node .title")
    sizes = browser.script(
        "return [...document.querySelectorAll('.node:not(.pill) .title')].map((e) => e.getBoundingClientRect().height)"
    )
    assert len(sizes) == len(browser.all(".node:not(.pill)")) and min(sizes) >= 8


def test_a_link_leads_to_an_operator(browser: Browser) -> None:
    browser.go("graph/digits?op=head&passes=before")
    browser.one(".side", "head", "1152")
    assert browser.one(".segmented [aria-pressed=true]", "As exported")


def test_a_drawing_is_a_picture_as_well(browser: Browser) -> None:
    browser.go("graph/digits")
    browser.one(".bar button", "PNG")
    made = browser.driver.execute_async_script(
        """const [done] = arguments;
        import(new URL("console/js/parts/save.js", document.baseURI)).then(async ({pngOf}) => {
          const svg = await (await fetch("models/digits/graph?format=svg")).blob();
          const picture = await createImageBitmap(await pngOf(svg));
          const pen = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
          pen.drawImage(picture, 0, 0);
          const colours = new Set(new Uint32Array(pen.getImageData(0, 0, picture.width, picture.height).data.buffer));
          done([picture.width, picture.height, colours.size]);
        }, (error) => done(String(error)));"""
    )
    assert made[0] > 300 and made[1] > 1000 and made[2] > 50, made


def test_keys_alone_are_enough(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.go("graph/long")
    browser.one(".node.fold")
    plane = browser.one(".plane")
    plane.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    browser.one(".node.fold.selected")
    plane.send_keys(Keys.ENTER)
    browser.one(".frame")
    plane.send_keys("+", "-", "f", Keys.ESCAPE)
    browser.wait(lambda: not browser.all(".node.selected"), "nothing selected")
    plane.send_keys("/")
    assert browser.script("return document.activeElement.type") == "search"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_the_graph_is_fit_for_everybody(browser: Browser, scheme: str, width: int) -> None:
    browser.scheme(scheme)
    browser.size(width, 844)
    browser.go("graph/digits?op=convbn2d_1")
    browser.one(".side", "convbn2d_1")
    browser.fits(width)
    assert browser.unfit() == []


def test_a_model_that_failed_says_so(window: Browser) -> None:
    window.size(1280, 800)
    window.go("graph/broken")
    window.one("main [role=alert]", "failed to load")
    window.complaints()  # the server has refused
