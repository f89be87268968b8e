"""README.md and docs/how-fast.md: the figures of their speed tables are those of benchmarks/results."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, page

ROW = re.compile(
    r"^\| \[[\w ]+\]\((?:\.\./)?(\S+)\) \| (\d+) \| (\S+), (\S+ \(\w+\)) \| (\S+), (\S+ \(\w+\)) \|$", re.M
)


@pytest.mark.parametrize("name", ["README.md", "docs/how-fast.md"])
def test_the_speed_table_has_the_figures_that_were_measured(name: str) -> None:
    rows = ROW.findall(page(name).partition("<!-- speed -->")[2])
    assert len(rows) >= 5
    for results, networks, *shown in rows:
        summary = (ROOT / results).read_text(encoding="utf-8").partition("## Networks: summary")[2]
        found = re.findall(r"^\| batch 1, [12] threads? +\| +(\d+) \| +(\S+) \| +(\S+ \(\w+\)) \|", summary, re.M)
        assert {count for count, _, _ in found} == {networks}, results
        assert [value for _, *values in found for value in values] == shown, results


def test_the_readme_is_short() -> None:
    assert len(page("README.md").splitlines()) <= 120
