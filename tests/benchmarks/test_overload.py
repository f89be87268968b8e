"""Overload benchmark: the attacks, and the table of measurements."""

from __future__ import annotations

import asyncio
import io
import socket
import time
import zipfile

import numpy as np
import pytest
from PIL import Image

from benchmarks.overload import attacks, report
from benchmarks.overload.__main__ import attacker
from benchmarks.overload.watch import Answers, Usage
from tests.patience import PATIENCE_S


def test_the_archive_announces_less_than_it_unpacks_to() -> None:
    archive = attacks.lying_archive()
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        (member,) = opened.infolist()
    assert member.file_size < 2000 < 1 << 20 <= member.compress_size * 1100


def test_the_small_request_is_an_honest_one() -> None:
    body = attacks.small_but_wide()
    assert len(body) < 100_000
    assert np.load(io.BytesIO(body))["in0"].shape == (1, 3, 2300, 2300)


def test_the_jpeg_repeats_a_scan() -> None:
    body = attacks.endless_scans()
    assert body.count(b"\xff\xda") > 10_000
    assert Image.open(io.BytesIO(body)).size == (1600, 1600)


def test_an_attack_without_an_answer_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(asyncio.wait_for(attacks.target(listener.getsockname()[1], time.monotonic() + 0.3), 30))


def test_quantiles_are_of_right_answers_alone() -> None:
    answers = Answers([0.001 * n for n in range(1, 101)], failed=7)
    assert answers.describe() == {
        "answers": 100,
        "failed": 7,
        "p50_ms": pytest.approx(51),
        "p99_ms": pytest.approx(100),
    }
    assert Answers().describe()["p99_ms"] is None


def test_a_server_that_is_gone_is_shown_as_gone() -> None:
    usage = Usage()
    usage.look(2**22 + 1)
    nothing = Answers().describe()
    row = {
        "attack": "noise", "tree": "now", "good": nothing, "health": nothing, "threads": 3, "files": 4,
        "memory_mb": {"start": 150.0, "peak": 3000.0, "after": usage.memory_mb},
    }  # fmt: skip
    text = report.attack_table([row])
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == ["noise", "now", "0", "0", "–", "–", "–", "0", "150", "3000", "gone", "3", "4"]


def test_the_attacker_is_a_process_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        with attacker("100 MB of URL", listener.getsockname()[1], time.monotonic() + PATIENCE_S) as process:
            assert process is not None
            with listener.accept()[0] as connection:
                connection.settimeout(PATIENCE_S)
                assert connection.recv(5) == b"GET /"
            process.kill()
    with attacker("no such attack", 1, 0.0) as none:
        assert none is None
