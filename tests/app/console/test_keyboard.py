"""Without a mouse: from the cards to a model, through its views, with the place one is at always to be seen."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.app.console.browser import Browser

pytestmark = pytest.mark.slow

# What has the focus: its words, whether it is in the window, and whether anything around it says so.
FOCUS = """
const at = document.activeElement; if (at === document.body) return null;
const style = getComputedStyle(at), box = at.getBoundingClientRect();
const words = [at.textContent, at.getAttribute("aria-label"), at.getAttribute("title"),
  at.className.baseVal ?? at.className];
return {
  words: words.filter(Boolean).join(" "),
  isSeen: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  isMarked: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
};
"""
_MOST_STEPS = 90


def tab_to(browser: Browser, words: str) -> None:
    """Go on with the tabulator until what has the focus is called that."""
    from selenium.webdriver import ActionChains

    for _ in range(_MOST_STEPS):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        at = browser.script(FOCUS)
        if at is None:  # from the last one it goes around by the page itself
            continue
        assert at["isMarked"] and at["isSeen"], at
        if words in at["words"]:
            return
    raise AssertionError(f"the tabulator does not lead to {words!r}")


def press(browser: Browser, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(browser.driver).send_keys(*keys).perform()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_that_is_done_with_a_mouse_is_done_with_keys(browser: Browser, scheme: str) -> None:
    browser.scheme(scheme)
    browser.go("models")
    browser.one(".model", "digits")
    tab_to(browser, "Try it: digits")
    press(browser, Keys.ENTER)
    browser.one(".answer", "3")
    tab_to(browser, "digit-7-b.png")
    press(browser, Keys.ENTER)
    browser.one(".answer", "7")
    tab_to(browser, "shapes v1")
    press(browser, Keys.SPACE)
    browser.one(".beside tbody", "different outputs")
    browser.script("document.activeElement.blur()")
    tab_to(browser, "Profile")
    press(browser, Keys.ENTER)
    browser.one(".lanes .span")
    tab_to(browser, "lanes")
    press(browser, Keys.ARROW_RIGHT)
    browser.one(".span.chosen")
    tab_to(browser, "plan")
    press(browser, Keys.ARROW_RIGHT)
    browser.one(".buffer.chosen")
    tab_to(browser, "plane")
    press(browser, Keys.ARROW_DOWN)
    browser.one(".node.selected")
    tab_to(browser, "convbn2d")
    press(browser, Keys.ENTER)
    browser.one(".kernels tr.picked")
