"""Tests that memory for BYTES elements is charged before they are made, whatever count the body states."""

from __future__ import annotations

import pytest

from app.errors import DeadlineExceededError, RefusedError, RequestTooLargeError
from app.memory.reservation import MemoryBudget, Reservation
from app.protocol.v2.inputs import elements_of

MANY = 100_000


def test_a_body_of_empty_elements_is_charged_for_the_objects_it_becomes() -> None:
    body = memoryview(bytes(4 * MANY))
    with Reservation(MemoryBudget(10 * len(body))), pytest.raises(RequestTooLargeError):
        elements_of(body, "in0", MANY)
    with Reservation(MemoryBudget(100 * len(body))) as reservation:
        assert len(elements_of(body, "in0", MANY)) == MANY
        assert reservation.held >= 100 * MANY


def test_more_elements_than_there_are_lengths_are_refused_before_anything_is_charged() -> None:
    with Reservation(MemoryBudget(1)), pytest.raises(RefusedError, match="expected 1152921504606846976 elements"):
        elements_of(memoryview(bytes(8)), "in0", 1 << 60)


def test_elements_of_a_cancelled_request_are_not_made() -> None:
    reservation = Reservation(MemoryBudget(10**9))
    with reservation, reservation.working(lambda: True), pytest.raises(DeadlineExceededError):
        elements_of(memoryview(bytes(4 * MANY)), "in0", MANY)
