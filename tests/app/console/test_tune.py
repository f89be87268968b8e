"""Ways to run a model measured against each other in a real browser."""

from __future__ import annotations

import pytest

from tests.app.console.browser import Browser

pytestmark = pytest.mark.slow
# What compiles nothing; half a second each is the least the page offers.
VIEW = "tune/digits?backend=reference&batch=1,2"
LONG = """
const field = document.querySelectorAll(".tune-form select")[1];
field.value = arguments[0];
field.dispatchEvent(new Event("change", {bubbles: true}));
"""


def test_candidates_become_points_and_rows_and_the_best_is_told_as_what_to_write_down(browser: Browser) -> None:
    browser.go(VIEW)
    browser.one(".tune-form [role=status]", "2 candidates")
    browser.click(".tune-form button", "4")
    browser.leads_to("batch=1%2C2%2C4")
    browser.script(LONG, "0.5")
    browser.click(".tune-form button", "Measure")
    browser.wait(lambda: len(browser.all(".trials tbody tr")) == 3, "three rows")
    browser.one(".block [role=status]", "Measured")
    assert len(browser.all(".tradeoff circle")) == 3 and browser.all(".tradeoff circle.best")
    assert browser.one(".trials tr", "as served") and len(browser.all(".trials .chip.good")) >= 1
    browser.one(".advice", "Highest throughput", "pnnx-serve bench digits")
    browser.click(".trials .link", "batch 2")
    browser.one(".trials tr.picked", "batch 2")
    browser.click(".trials th button", "Items/s")
    rates = [float(row.text.split()[-1].replace(",", "")) for row in browser.all(".trials tbody td:nth-child(4)")]
    assert rates == sorted(rates, reverse=True)
    for scheme, width in (("light", 1280), ("dark", 390)):
        browser.scheme(scheme)
        browser.size(width, 844)
        browser.fits(width)
        assert browser.unfit() == []


def test_what_is_measured_can_be_cancelled_and_begun_again_by_keys_alone(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.go("tune/digits?backend=reference&batch=1,2,4,8,16,32")
    browser.one(".tune-form button", "Measure")
    browser.script(LONG, "10")  # long enough not to end before it is cancelled
    browser.one(".tune-form button", "Measure").send_keys(Keys.ENTER)
    browser.one(".trials tbody tr")
    browser.one(".tune-form button", "Cancel").send_keys(Keys.SPACE)
    browser.one(".block [role=status]", "Cancelled")
    browser.one(".tune-form button", "Measure")


def test_a_model_of_dynamic_sizes_asks_for_a_sample(browser: Browser) -> None:
    browser.go("tune/superres")
    browser.wait(lambda: browser.one(".tune-form .field").get_attribute("value"), "a sample of its own")
