"""docs/operating.md and deploy/: they name the metrics there are."""

from __future__ import annotations

from docs.generate_metrics import PAGE, with_table
from tests.docs.pages import ROOT, blocks, page


def test_the_table_of_metrics_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python docs/generate_metrics.py"


def test_the_page_shows_the_configuration_that_lies_in_deploy() -> None:
    (shown,) = [block.text for block in blocks(page("docs/operating.md")) if block.language == "yaml"]
    assert (ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8").endswith(shown)
