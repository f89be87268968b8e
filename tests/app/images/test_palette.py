"""Colours of classes: apart, readable, and always the same."""

from __future__ import annotations

import itertools
import math

import pytest

from app.images.palette import Color, generated, parsed, text_on


def luminance(color: Color) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [part / 255 for part in color]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: Color, b: Color) -> float:
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


def test_no_two_classes_share_a_colour_until_all_are_used() -> None:
    assert len({generated(index) for index in range(255)}) == 255
    assert generated(255) == generated(0)


def test_the_colours_of_a_few_classes_are_far_apart() -> None:
    pairs = itertools.combinations([generated(index) for index in range(20)], 2)
    assert min(math.dist(a, b) for a, b in pairs) > 60


@pytest.mark.parametrize("index", range(0, 255, 5))
def test_text_on_a_colour_is_readable(index: int) -> None:
    color = generated(index)
    assert contrast(color, text_on(color)) >= 4.5
    assert contrast(color, text_on(color)) == max(contrast(color, other) for other in ((0, 0, 0), (255, 255, 255)))


def test_a_colour_is_read_from_its_digits() -> None:
    assert parsed("#0aFf10") == (10, 255, 16)
