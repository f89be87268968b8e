"""Windows of waves: every sample counts once, whatever the sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.sound.windows import Windows


def windows(size: int | None, overlap: int = 0, context: int = 0, *, is_padded: bool = True) -> Windows:
    return Windows(size=size, overlap=overlap, context=context, least=1, is_padded=is_padded, rate=1)


@given(
    samples=st.integers(1, 60), size=st.integers(1, 20), overlap=st.integers(0, 19), context=st.integers(0, 5),
    most=st.integers(1, 5), is_padded=st.booleans(),
)  # fmt: skip
def test_kept_parts_of_windows_are_the_whole_sound_once(
    samples: int, size: int, overlap: int, context: int, most: int, is_padded: bool
) -> None:
    made = windows(size, min(overlap, size - 1), context, is_padded=is_padded)
    wave = np.arange(1, samples + 1, dtype=np.float32)
    kept: list[float] = []
    for spans in made.groups(made.spans(samples), most):
        rows = made.rows(wave, spans)
        assert len(spans) <= most and rows.shape[1] in (context + size, context + spans[0][1] - spans[0][0])
        for row, (start, end) in zip(rows, spans, strict=True):
            clip = made.clip((start, end), samples)
            assert clip.start_s <= clip.kept_s[0] <= clip.kept_s[1] <= clip.end_s
            values = row[context:]
            kept += values[int(clip.kept_s[0]) - start : int(clip.kept_s[1]) - start].tolist()
            before = wave[max(0, start - context) : start]
            np.testing.assert_array_equal(row[:context][context - len(before) :], before)
            assert not values[end - start :].any()
    assert kept == wave.tolist()


def test_a_wave_without_a_window_is_one_row() -> None:
    made = windows(None, is_padded=False)
    assert list(made.groups(made.spans(5), 3)) == [[(0, 5)]]
    assert made.rows(np.ones(5, np.float32), [(0, 5)]).tolist() == [[1] * 5]
