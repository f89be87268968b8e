"""A quantised model in the console: its report, and its graph by precision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.console.browser import Browser, browsing, missing
from tests.app.console.conftest import serving
from tests.app.console.quantised_model import write_quantised

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    store = tmp_path_factory.mktemp("quantised")
    write_quantised(store)
    with serving(store, backend="reference") as (url, _), browsing(url) as browser:
        browser.size(1280, 900)
        yield browser
        assert browser.complaints() == []


def test_the_profile_tells_times_and_error_of_each_layer(quantised: Browser) -> None:
    quantised.go("profile/digits8")
    panel = quantised.one(
        "[aria-label=Quantisation]",
        "6 of 6 layers in bf16 and int8",
        "weights 60 kB smaller",
        "99.910 % of the outputs' energy",
    )
    assert "98.00 % → 97.50 %" in panel.text and "−2.30 to +1.30" in panel.text
    rows = quantised.all(".quantised tbody tr")
    assert len(rows) == 6
    assert "bf16" in rows[0].text and "error" in rows[0].text and "7 µs" in rows[0].text
    assert "+6 µs, −17 %" in rows[1].text and "40 dB" in rows[1].text
    assert quantised.unfit() == []


def test_the_graph_has_colours_by_precision(quantised: Browser) -> None:
    quantised.go("graph/digits8")
    quantised.one(".legend", "convolution")
    quantised.click(".bar button", "Precision")
    legend = quantised.text(".legend", "int8", "bfloat16")
    assert "convolution" not in legend
    quantised.leads_to("colours=precision")
    quantised.one(".node.family-precision-bfloat16")
    quantised.one(".node.family-precision-int8")
    assert quantised.unfit() == []


def test_an_operator_tells_its_precision(quantised: Browser) -> None:
    quantised.go("graph/digits8?op=convbn2d_1")
    quantised.one(".side", "convbn2d_1", "int8")


def test_the_card_tells_the_precision(quantised: Browser) -> None:
    quantised.go("models")
    quantised.one(".model .about", "auto")


def test_candidates_and_entries_have_a_precision(quantised: Browser, tmp_path: Path) -> None:
    quantised.go("tune/digits8")
    quantised.one(".axis", "Precision", "bf16 where faster")
    quantised.go("compare/digits8?entries=digits8,digits8:1:compiled:1:bf16")
    choices = quantised.wait(lambda: quantised.all("[aria-label='Precision of entry 2']"), "a choice of precision")
    assert choices[0].get_attribute("value") == "bf16"
