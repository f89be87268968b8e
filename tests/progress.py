"""Lines that tell how far a run of the tests is, every few seconds, in a terminal or a log (``--progress``)."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

import pytest

EVERY_S: Final = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("terminal reporting").addoption(
        "--progress", action="store_true", help="print a line of progress every few seconds instead of a dot a test"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--progress") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress())


class Progress:
    """Counter of the tests that ended, and a thread that prints it until the session ends."""

    def __init__(self) -> None:
        # A copy, for what is printed while a test runs is taken for the test's own output.
        self._output = os.dup(1)
        self._start = time.monotonic()
        self._total: int | None = None
        self._failed = 0
        self._ended = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._print, name="progress", daemon=True)

    @property
    def line(self) -> str:
        """Tests that ended, of how many, failures, seconds since the start."""
        seconds = f"{time.monotonic() - self._start:.0f} s"
        if self._total is None:
            return f"collecting tests, {seconds}"
        return f"{self._ended} of {self._total} tests, {self._failed} failed, {seconds}"

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:  # a process that hands tests out to others collects none
            self._total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._total = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letter, but count the test as it would have been."""
        if hasattr(report, "wasxfail"):
            return None
        category = "error" if report.failed and report.when != "call" else report.outcome
        if report.passed:
            return "passed" if report.when == "call" else "", "", ""
        return category, "", category.upper()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            self._write(f"FAILED {report.nodeid}")

    def pytest_runtest_logfinish(self) -> None:
        self._ended += 1

    def pytest_sessionfinish(self) -> None:
        self._stop.set()
        self._thread.join()
        self._write(self.line)

    def _print(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._write(self.line)

    def _write(self, line: str) -> None:
        os.write(self._output, f"{line}\n".encode())
