"""A little of the attack on sockets; the module itself runs as long as one likes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.sockets import attack, judge


@pytest.mark.slow
def test_hostile_streams_leave_the_server_alive_small_and_polite() -> None:
    report = attack(seconds=3600, seed=1, rounds=1)
    assert not report.findings
    assert {200, 400} <= set(report.statuses)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nx-content-type-options: nosniff\r\ncontent-length: 2\r\n\r\nno",
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 Internal Server Error\r\nx-content-type-options: nosniff\r\ncontent-length: 2\r\n\r\n{}",
        b"Traceback\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_as_it_should_be_is_found(answer: bytes) -> None:
    assert judge(answer, Counter())


def test_what_follows_the_answer_to_a_head_is_the_next_answer() -> None:
    head = b"HTTP/1.1 404 Not Found\r\ncontent-length: 83\r\nx-content-type-options: nosniff\r\n\r\n"
    next_one = head.replace(b"83", b"0")
    statuses: Counter[int] = Counter()
    assert judge(head + next_one, statuses) is None and statuses == {404: 2}
