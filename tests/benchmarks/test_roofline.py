"""Roofline: every number is printed."""

from __future__ import annotations

import re

import pytest

from benchmarks import roofline


@pytest.mark.parametrize("threads", ["1", "2"])
def test_every_size_has_its_rates(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["8192", "65536"]
    assert roofline.main(["--seconds", "0.002", "--threads", threads, "--sizes", *sizes]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^multiply-adds on registers: \d+ GFLOP/s a core$", shown, re.M)
    assert re.findall(r"^\| (\d+) KiB \| \d+ \| \d+ \|$", shown, re.M) == ["8", "64"]
