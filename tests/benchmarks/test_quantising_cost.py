"""The benchmark of what quantising costs gives each side the same, finite samples."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quantising_cost import Pictures


def test_samples_end_and_are_the_same_each_time() -> None:
    pictures = Pictures((1, 3, 4, 4), 3)
    assert len(pictures) == len(list(pictures)) == 3
    np.testing.assert_array_equal(pictures[2][0], pictures[2][0])
    assert (pictures[1][0].shape, pictures[1][0].dtype) == ((1, 3, 4, 4), np.float32)
    with pytest.raises(IndexError):
        pictures[3]
