"""Comparison of models in a real browser: answers, times, and the first operand whose values differ."""

from __future__ import annotations

import pytest

from tests.app.console.browser import Browser

pytestmark = pytest.mark.slow


def test_the_operator_where_two_models_part_is_named_and_shown_on_the_graph(browser: Browser) -> None:
    browser.go("compare/long?entries=long,begun")  # a link that names entries leads to what they come to
    browser.one(".block [role=status]", "Compared")
    browser.one(".versus-table", "stage0.1.relu", "of 9", "beyond")
    assert len(browser.all(".drift circle")) == 9 and len(browser.all(".drift circle.wrong")) == 5
    browser.one(".node .note", "✕")
    browser.script("document.querySelector('.drift circle.wrong').dispatchEvent(new Event('click', {bubbles: true}))")
    browser.one(".picked-value", "stage0.1.relu", "nn.Sigmoid")
    assert len(browser.all(".figures-table tbody tr")) == 4 and browser.one(".node.selected")
    browser.leads_to("op=stage0.1.relu")
    browser.one(".unmatched summary", "Only in entry 1", "291 operators")
    for scheme, width in (("light", 1280), ("dark", 390)):
        browser.scheme(scheme)
        browser.size(width, 844)
        browser.fits(width)
        assert browser.unfit() == []


def test_entries_are_added_put_first_and_taken_away_and_the_address_says_which(browser: Browser) -> None:
    browser.go("compare/digits")
    browser.wait(lambda: len(browser.all(".entry")) == 2, "the usual two")
    browser.click(".entry:nth-child(2) [aria-label^=Remove]")
    browser.click(".versus button", "Add entry")
    pick = "const s = document.querySelector('.entry:nth-child(2) select'); s.value = 'shapes';"
    browser.script(pick + "s.dispatchEvent(new Event('change', {bubbles: true}))")
    browser.leads_to("entries=digits%2Cshapes%3A")
    browser.click(".entry:nth-child(2) button", "Make baseline")
    browser.leads_to("%2Cdigits")
    browser.one(".versus button", "Compare")


def test_what_was_tried_is_compared_operator_by_operator(browser: Browser) -> None:
    browser.go("try/digits")
    browser.one(".answer", "3")
    browser.click(".beside a", "Operator by operator")
    browser.wait(lambda: browser.one(".versus .start select").get_attribute("value") == "*", "what was tried")
    browser.click(".versus button", "Compare")
    browser.one(".block [role=status]", "Compared")
    assert browser.one(".versus-table", "3 100 %")
