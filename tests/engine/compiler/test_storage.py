"""Tensors in memory are laid out alike whether their sizes are numbers or only behave so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.compiler.storage import View, channels_last, like, ordered, row_major, spaced_rows
from tests.engine.ir.sizes import numbers, plain, sizes

F32 = np.dtype(np.float32)
IMAGE = (2, 16, 5, 7)


def described(view: View) -> tuple[Any, ...]:
    places = numbers(view.shape), numbers(view.strides), plain(view.offset), plain(view.storage.bytes)
    return *places, view.order, view.is_channels_last, view.is_image, view.is_row_major, view.border


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda shape: row_major(shape, F32), IMAGE),
        (lambda shape: row_major(shape, F32), (2, 0, 3)),
        (lambda shape: ordered(shape, (0, 2, 1, 3), F32), IMAGE),
        (lambda shape: spaced_rows(shape), (3, 512)),
        (lambda shape: channels_last(shape, (1, 2, 3, 4)), IMAGE),
        (lambda shape: channels_last(shape), (2, 256, 1, 7)),
        (lambda shape: channels_last(shape, (0, 1, 0, 1)), (2, 16, 9)),
        (lambda shape: channels_last(shape), (2, 16, 3, 5, 7)),
        (lambda shape: like(channels_last(shape), F32), IMAGE),
        (lambda shape: like(row_major(shape, F32), F32), IMAGE),
    ],
)
def test_sizes_need_not_be_numbers(make: Callable[[Any], View], shape: tuple[int, ...]) -> None:
    assert described(make(sizes(shape))) == described(make(shape))


def test_views_of_views_need_no_numbers() -> None:
    image = channels_last(sizes(IMAGE), (1, 1, 1, 1))
    channels, rows = image.derive(image.meta[:, 2:6]), image.derive(image.meta.reshape(2, 4, 4, 5, 7))
    assert channels is not None and rows is not None
    assert (numbers(channels.shape), plain(channels.offset), channels.border) == ((2, 4, 5, 7), 648, (1, 1, 1, 1))
    assert numbers(rows.strides) == (1008, 4, 1, 144, 16)
    assert image.derive(image.meta.reshape(2, 16, 35)) is None
