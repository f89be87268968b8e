"""The integers that a model takes are found by running it, and examples are drawn from them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import exporter


@pytest.fixture
def bounds(torch: Any) -> Callable[..., list[Any]]:
    """The smallest and the largest integers of each input that a function takes, lists where columns differ."""
    ranges, drawing = (importlib.import_module(f"exporter.{name}") for name in ("ranges", "drawing"))

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.forward = function

    def found(function: Any, *shapes: str) -> list[Any]:
        inputs = exporter.parse_inputs(shapes)
        others = drawing.draw(drawing.PLAIN, inputs, [None] * len(inputs), 0)
        result = ranges.find_ranges(Model(function), inputs, others)
        for kind in drawing.KINDS:
            function(*drawing.draw(kind, inputs, result, 1))  # takes them
        return [each and (_one_or_many(each.low), _one_or_many(each.high)) for each in result]

    return found


def _one_or_many(values: Any) -> int | list[int]:
    numbers: list[int] = values.tolist()
    return numbers[0] if len({*numbers}) == 1 else numbers


@pytest.mark.parametrize("rows", [1, 2, 9, 1000])
def test_rows_of_a_table_are_bounded_by_it(rows: int, torch: Any, bounds: Any) -> None:
    table = torch.randn(rows, 3)
    assert bounds(lambda i: torch.nn.functional.embedding(i, table), "4,5,6i64") == [(0, rows - 1)]
    assert bounds(lambda i: table[i], "4,5,6i64") == [(-rows, rows - 1)]
    assert bounds(lambda x, i: table[i.long() - 1], "2", "10i32") == [None, (1 - rows, rows)]


def test_each_column_has_a_range_of_its_own(torch: Any, bounds: Any) -> None:
    canvas = torch.zeros(1, 4, 5)
    (found,) = bounds(lambda at: canvas[at[:, 0], at[:, 1], at[:, 2]], "10,3i64")
    assert found == ([-1, -4, -5], [0, 3, 4])


def test_inputs_that_index_together_are_valid_together(torch: Any, bounds: Any) -> None:
    found = bounds(lambda y, x: torch.zeros(4096)[y * 64 + x], "200i64", "200i64")
    assert [high for _, high in found] == [63, 63]


def test_integers_that_index_nothing_end_where_their_dtype_or_single_precision_does(torch: Any, bounds: Any) -> None:
    assert bounds(lambda i: i * 2.0, "3,20i64") == [(-(2**24), 2**24)]
    assert bounds(lambda i: i * 2.0, "3,20i8") == [(-128, 127)]
    assert bounds(lambda i: i * 2.0, "3,20u8") == [(0, 255)]


def test_numbers_of_which_zero_is_refused_begin_at_one(torch: Any, bounds: Any) -> None:
    def needs_one(n: Any) -> Any:
        if (n < 1).any() or (n > 6).any():
            raise ValueError("not a length")
        return n * 2

    assert bounds(needs_one, "3,20i64") == [(1, 6)]


def test_integers_that_make_nan_or_ever_larger_results_are_not_followed(torch: Any, bounds: Any) -> None:
    assert bounds(lambda i: (5.0 - i).clamp(min=0) / (i < 6), "3,20i64") == [(-(2**24), 5)]
    ((_, most),) = bounds(lambda n: torch.ones(50).repeat_interleave(n), "50i64")
    assert 1000 < most < 2**20


def test_a_model_that_takes_no_integers_is_refused_with_its_reason(torch: Any, bounds: Any) -> None:
    def refuses(i: Any) -> Any:
        raise ValueError("never")

    with pytest.raises(exporter.SourceError, match="found ValueError: never"):
        bounds(refuses, "3i64")


@pytest.mark.parametrize("shape", ["1i64", "2i64", "7i64", "3,4i64", "1,1,9i64", "3,20i32"])
def test_examples_reach_both_ends_are_distinct_and_alike(shape: str, torch: Any) -> None:
    ranges, drawing = (importlib.import_module(f"exporter.{name}") for name in ("ranges", "drawing"))
    inputs = exporter.parse_inputs([shape])
    limits = [ranges.Range(torch.tensor([-70]), torch.tensor([99]), 0)]

    def drawn(kind: str, seeds: Sequence[int] = range(20)) -> list[Any]:
        return [each for seed in seeds for each in drawing.draw(kind, inputs, limits, seed)]

    every = torch.cat([each.flatten() for kind in drawing.KINDS for each in drawn(kind)])
    assert int(every.min()) < 0 and int(every.max()) == 99
    assert all(len(each.unique()) == each.numel() for each in drawn(drawing.LARGE))
    assert {*torch.cat([each.flatten() for each in drawn(drawing.PLAIN)]).tolist()} == {0, 1}
    assert all(int(each.min()) >= 0 for kind in (drawing.SPREAD, drawing.LARGE) for each in drawn(kind))
