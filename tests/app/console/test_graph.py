"""The graph in a real browser: it fits, unfolds, is searched and walked through, and tells what an operator is."""

from __future__ import annotations

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
    assert "passes=before" in browser.driver.current_url


def test_an_operator_is_found_by_name_and_tells_what_it_is(browser: Browser) -> None:
    browser.go("graph/digits")
    browser.one(".node", "nn.Conv2d")
    browser.one(".search input").send_keys("convbn2d_1\n")
    side = browser.one(".side", "convbn2d_1")
    assert "kernel_size" in side.text and "(3, 3)" in side.text and "24×24×3×3" in side.text.replace(" ", "")
    assert "op=convbn2d_1" in browser.driver.current_url
    browser.click(".attribute summary", "weight")
    browser.one(".histogram svg")
    assert "mean" in browser.one(".attribute[open]").text
    browser.click(".side .close")
    browser.wait(lambda: not browser.all(".side"), "a side that is shut")


def test_a_link_leads_to_an_operator(browser: Browser) -> None:
    browser.go("graph/digits?op=head&passes=before")
    assert "1152" in browser.one(".side", "head").text
    assert browser.one(".segmented [aria-pressed=true]", "As exported")


def test_a_drawing_is_a_picture_as_well(browser: Browser) -> None:
    browser.go("graph/digits")
    browser.one(".bar button", "Save PNG")
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
    assert browser.script("return document.documentElement.scrollWidth") <= width
    assert browser.unfit() == []


def test_a_model_that_failed_says_so(window: Browser) -> None:
    window.size(1280, 800)
    window.go("graph/broken")
    assert "failed to load" in window.one("main [role=alert]").text
    window.complaints()  # the server has refused
