"""Models held against each other in a real browser: answers, times, and where their values part."""

from __future__ import annotations

import pytest

from tests.app.console.browser import Browser

pytestmark = pytest.mark.slow


def test_the_operator_where_two_models_part_is_named_and_shown_on_the_graph(browser: Browser) -> None:
    browser.go("compare/long?entries=long,begun")  # a link that names entries leads to what they come to
    browser.one(".block [role=status]", "Compared")
    table = browser.one(".versus-table").text
    assert "stage0.1.relu" in table and "of 9" in table and "beyond" in table
    assert len(browser.all(".drift circle")) == 9 and len(browser.all(".drift circle.wrong")) == 5
    browser.one(".node .note", "✕")
    browser.script("document.querySelector('.drift circle.wrong').dispatchEvent(new Event('click', {bubbles: true}))")
    assert "nn.Sigmoid" in browser.one(".picked-value", "stage0.1.relu").text
    assert len(browser.all(".figures-table tbody tr")) == 4 and browser.one(".node.selected")
    assert "op=stage0.1.relu" in browser.driver.current_url
    assert "291 operators" in browser.one(".unmatched summary", "Only in entry 1").text
    for scheme, width in (("light", 1280), ("dark", 390)):
        browser.scheme(scheme)
        browser.size(width, 844)
        assert browser.script("return document.documentElement.scrollWidth") <= width
        assert browser.unfit() == []


def test_entries_are_added_put_first_and_taken_away_and_the_address_says_which(browser: Browser) -> None:
    browser.go("compare/digits")
    browser.wait(lambda: len(browser.all(".entry")) == 2, "the usual two")
    browser.click(".entry:nth-child(2) [aria-label^=Remove]")
    browser.click(".versus button", "Add another")
    pick = "const s = document.querySelector('.entry:nth-child(2) select'); s.value = 'shapes';"
    browser.script(pick + "s.dispatchEvent(new Event('change', {bubbles: true}))")
    browser.wait(lambda: "entries=digits%2Cshapes%3A" in browser.driver.current_url, "two models")
    browser.click(".entry:nth-child(2) button", "Put first")
    browser.wait(lambda: "%2Cdigits" in browser.driver.current_url, "the other order")
    browser.one(".versus button", "Compare")


def test_what_was_tried_is_compared_operator_by_operator(browser: Browser) -> None:
    browser.go("try/digits")
    browser.one(".answer", "3")
    browser.click(".beside a", "Operator by operator")
    assert browser.one(".versus .start select").get_attribute("value") == "*"
    browser.click(".versus button", "Compare")
    browser.one(".block [role=status]", "Compared")
    assert browser.one(".versus-table", "3 100 %")
