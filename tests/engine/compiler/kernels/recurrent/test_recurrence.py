"""Recurrences compared with the formulas in float64, in buffers between guard pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen.host import Host, describe
from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.channels import panels_of
from engine.compiler.kernels.products.arithmetic import Words
from engine.compiler.kernels.recurrent.blocking import (
    SHARED_SIZE,
    Blocking,
    Hoisting,
    choose_blocking,
    choose_groups,
    choose_hoisting,
    is_shared,
)
from engine.compiler.kernels.recurrent.cells import GATES, CellKind
from engine.compiler.kernels.recurrent.layout import CellWeights, States, Steps, gate_rows, spread
from engine.compiler.kernels.recurrent.progress import LINE_WORDS
from engine.compiler.kernels.recurrent.recurrence import Recurrence
from engine.compiler.kernels.recurrent.rounding import RoundedRows, Rounding
from engine.compiler.kernels.recurrent.shared_writer import words_of
from engine.tensor import BFLOAT16, Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import HOSTS, LEVELS, run
from tests.engine.compiler.machines import MACHINES

CELLS: tuple[CellKind, ...] = ("lstm", "gru", "tanh", "relu")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A layer of random weights.

    Args:
        gap: unused floats between rows.
        groups: of a step that threads share; 0 where they do not.
        words: what the state is rounded to before it is multiplied.
        of_all: whether all rows have one range.
    """

    cell: CellKind
    steps: int = 5
    batch: int = 1
    units: int = 16
    backward: tuple[bool, ...] = (False,)
    projected: int = 0
    gap: int = 0
    groups: int = 0
    words: Words = "float"
    of_all: bool = False

    @property
    def rounding(self) -> Rounding | None:
        return None if self.words == "float" else Rounding(self.words, self.width, self.of_all)

    @property
    def width(self) -> int:
        return self.projected or self.units

    @property
    def states(self) -> list[int]:
        return [self.width, self.units] if self.cell == "lstm" else [self.width]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def expected(case: Case, gates: Array, weights: CellWeights, states: list[Array]) -> tuple[Array, list[Array]]:
    """Return h of every step and the last states, from (steps, batch, gates * units)."""
    outputs, hidden = [], weights.hidden.astype(np.float64)
    if weights.scales is not None:
        hidden *= weights.scales[:, None]
    elif case.words == "bfloat16":
        hidden = rounded(case, hidden)
    for gate in gates:
        inner = rounded(case, states[0]) @ hidden.T
        if case.cell == "lstm":
            i, f, g, o = np.split(gate + inner, 4, axis=1)
            c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states = [h if weights.projection is None else h @ weights.projection.T.astype(np.float64), c]
        elif case.cell == "gru":
            mine, theirs = np.split(gate, 3, axis=1), np.split(inner, 3, axis=1)
            r, z = sigmoid(mine[0] + theirs[0]), sigmoid(mine[1] + theirs[1])
            n = np.tanh(mine[2] + r * (theirs[2] + weights.bias))
            states = [(1 - z) * n + z * states[0]]
        else:
            states = [np.tanh(gate + inner) if case.cell == "tanh" else np.maximum(gate + inner, 0)]
        outputs.append(states[0])
    return np.stack(outputs), states


def rounded(case: Case, h: Array) -> Array:
    """Return rows as they are multiplied: as bfloat16, or as 255 steps of the range of a row or of all rows."""
    if case.words == "float":
        return h
    h = h.astype(np.float32)
    if case.words == "bfloat16":
        return h.astype(BFLOAT16).astype(np.float64)
    axis = None if case.of_all else 1
    low, high = np.minimum(h.min(axis, keepdims=True), 0), np.maximum(h.max(axis, keepdims=True), 0)
    scale = (high - low) / np.float32(255)
    scale[scale == 0] = 1
    zero = np.rint(-low / scale)
    return np.asarray((np.clip(np.rint(h / scale) + zero, 0, 255) - zero) * scale, np.float64)


def numbers(*shape: int, scale: float = 1.0) -> Array:
    random = np.random.default_rng(sum(shape))
    return (random.standard_normal(shape) * scale).astype(np.float32)


def weights_of(case: Case) -> CellWeights:
    rows = GATES[case.cell] * case.units
    hidden, scales = numbers(rows, case.width, scale=case.width**-0.5), None
    if case.words in ("int8", "int16"):
        most = 127 if case.words == "int8" else 255
        scales = np.abs(hidden).max(1) / np.float32(most)
        hidden = np.rint(hidden / scales[:, None]).astype(case.words)
    return CellWeights(
        hidden,
        scales,
        numbers(case.units) if case.cell == "gru" else None,
        numbers(case.projected, case.units, scale=case.units**-0.5) if case.projected else None,
    )


def computed(
    host: Host, case: Case, gates: Array, initial: list[Array], blocking: Blocking | None, at_end: bool
) -> tuple[Array, list[Array]]:
    """Return the kernel's sequence (steps, directions, batch, width) and last states (directions, batch, width)."""
    count = len(case.backward)
    blocking = blocking or choose_blocking(
        host, gates=GATES[case.cell], units=case.units, taps=case.width, batch=case.batch
    )
    rows = np.concatenate(gate_rows(panels_of(case.units, host.lanes, blocking.vectors), GATES[case.cell], case.units))
    pitch, out = count * len(rows) + case.gap, count * case.width + case.gap
    source = np.full((case.steps, case.batch, pitch), np.nan, np.float32)
    for d in range(count):
        source[..., d * len(rows) : (d + 1) * len(rows)] = np.moveaxis(spread(np.moveaxis(gates[d], 2, 0), rows), 0, 2)
    ways = [-1 if back else 1 for back in case.backward]
    starts = [4 * case.batch * (case.steps - 1) * back for back in case.backward]
    kernel = Recurrence(
        host=host, cell=case.cell, steps=case.steps, batch=case.batch, units=case.units, projected=case.projected,
        source=Steps(tuple(way * case.batch * pitch for way in ways), pitch),
        sequence=Steps(tuple(way * case.batch * out for way in ways), out),
        initial=tuple(States(case.batch * width, width) for width in case.states),
        final=tuple(States(case.batch * width, width) for width in case.states),
        blocking=blocking, groups=case.groups, rounding=case.rounding,
    )  # fmt: skip

    def guarded(array: Array) -> Array:
        return guarded_array(array, at_end=at_end)

    words = [guarded(np.zeros(2 * LINE_WORDS * words_of(case.groups), np.float32))] if case.groups else []
    whole = guarded(source.reshape(-1)[: source.size - case.gap])
    sequence = guarded(np.full(case.steps * case.batch * out - case.gap, 7, np.float32))
    finals = [guarded(np.full((count, case.batch, width), 7, np.float32)) for width in case.states]
    arguments: list[Array] = []
    skipped: list[int] = []
    for d in range(count):
        arguments += [whole, sequence]
        skipped += [starts[d] * pitch + 4 * d * len(rows), starts[d] * out + 4 * d * case.width]
    scratch = guarded(np.full(kernel.scratch_floats, np.nan, np.float32))
    packed = guarded(kernel.pack([weights_of(case)] * count))
    run(kernel, host.name, [*arguments, packed, *map(guarded, initial), scratch, *finals, *words], skipped)
    result = np.append(sequence, np.full(case.gap, 7, np.float32)).reshape(case.steps, case.batch, out)
    assert (result[..., count * case.width :] == 7).all()
    parts = result[..., : count * case.width].reshape(case.steps, case.batch, count, case.width)
    return np.moveaxis(parts, 2, 1), finals


def computed_hoisted(level: str, case: Case, hoisted: Hoisting, blocking: Blocking, at_end: bool) -> None:
    """Compare a kernel that computes its own input projection with the formulas."""
    host, count, x = describe(level), len(case.backward), numbers(case.steps, 1, hoisted.width)
    rows = GATES[case.cell] * case.units
    input, bias = numbers(rows, hoisted.width, scale=hoisted.width**-0.5), numbers(rows)
    pitch, out = hoisted.width + case.gap, case.width + case.gap
    ways = [-1 if back else 1 for back in case.backward]
    states = tuple(States(width, width) for width in case.states)
    kernel = Recurrence(
        host=host, cell=case.cell, steps=case.steps, batch=1, units=case.units, hoisted=hoisted, blocking=blocking,
        source=Steps(tuple(way * pitch for way in ways), 0),
        sequence=Steps(tuple(way * count * out for way in ways), 0), initial=states, final=states,
    )  # fmt: skip

    def guarded(array: Array) -> Array:
        return guarded_array(array, at_end=at_end)

    spaced = np.full((case.steps, pitch), np.nan, np.float32)
    spaced[:, : hoisted.width] = x[:, 0]
    source = guarded(spaced.reshape(-1)[: spaced.size - case.gap])
    sequence = guarded(np.full(case.steps * count * out - case.gap, 7, np.float32))
    initial = [numbers(count, 1, width) for width in case.states]
    finals = [guarded(np.full((count, 1, width), 7, np.float32)) for width in case.states]
    skipped: list[int] = []
    for d, back in enumerate(case.backward):
        last = (case.steps - 1) * back
        skipped += [4 * last * pitch, 4 * (last * count * out + d * out)]
    scratch = [guarded(np.full(size, np.nan, np.float32)) for size in (kernel.scratch_floats, kernel.block_floats)]
    packed = guarded(kernel.pack([replace(weights_of(case), input=input, input_bias=bias)] * count))
    arguments = [source, sequence] * count
    run(kernel, level, [*arguments, packed, *map(guarded, initial), *scratch, *finals], skipped)
    result = np.append(sequence, np.full(case.gap, 7, np.float32)).reshape(case.steps, count, out)
    assert (result[..., case.width :] == 7).all()
    gates = x.astype(np.float64) @ input.T.astype(np.float64) + bias
    for d, back in enumerate(case.backward):
        turn = slice(None, None, -1 if back else 1)
        begun = [each[d].astype(np.float64) for each in initial]
        wanted, ends = expected(case, gates[turn], weights_of(case), begun)
        np.testing.assert_allclose(result[turn, d, : case.width], wanted[:, 0], rtol=2e-5, atol=4e-6)
        for mine, theirs in zip(finals, ends, strict=True):
            np.testing.assert_allclose(mine[d], theirs, rtol=2e-5, atol=4e-6)


def check(level: str, case: Case, blocking: Blocking | None = None, *, at_end: bool = True) -> None:
    """Compare the kernel with the formulas."""
    gates = [numbers(case.steps, case.batch, GATES[case.cell] * case.units) for _ in case.backward]
    initial = [numbers(len(case.backward), case.batch, width) for width in case.states]
    found, finals = computed(describe(level), case, np.stack(gates), initial, blocking, at_end)
    for d, back in enumerate(case.backward):
        turn = slice(None, None, -1 if back else 1)
        start = [each[d].astype(np.float64) for each in initial]
        wanted, last = expected(case, gates[d][turn].astype(np.float64), weights_of(case), start)
        np.testing.assert_allclose(found[turn, d], wanted, rtol=2e-5, atol=2e-6)
        for mine, theirs in zip(finals, last, strict=True):
            np.testing.assert_allclose(mine[d], theirs, rtol=2e-5, atol=2e-6)


@together(("level", LEVELS), ("cell", CELLS), ("units", [1, 2, 3, 4, 7, 16, 17, 31, 48, 65, 130]))
def test_any_number_of_units(level: str, cell: CellKind, units: int) -> None:
    check(level, Case(cell=cell, units=units))


@together(("level", LEVELS), ("cell", CELLS), ("steps", [1, 2, 101]), ("backward", [(True,), (False, True)]))
def test_any_number_of_steps_in_either_direction(
    level: str, cell: CellKind, steps: int, backward: tuple[bool, ...]
) -> None:
    check(level, Case(cell=cell, steps=steps, units=20, backward=backward, gap=3))


@together(("level", LEVELS), ("cell", CELLS), ("batch", [2, 3, 5, 8, 19]))
def test_any_batch_in_any_order_of_its_rows(level: str, cell: CellKind, batch: int) -> None:
    check(level, Case(cell=cell, batch=batch, units=37, backward=(False, True), gap=5))


@together(("level", LEVELS), ("units,projected", [(2, 1), (20, 5), (40, 33), (70, 64)]), ("batch", [1, 3]))
def test_projected_states(level: str, units: int, projected: int, batch: int) -> None:
    check(level, Case(cell="lstm", units=units, projected=projected, batch=batch, backward=(False, True), gap=2))


@together(
    ("level", LEVELS),
    ("cell", CELLS),
    ("blocking", [Blocking(1, 1, 1), Blocking(2, 1, 4), Blocking(1, 3, 2), Blocking(3, 2, 1)]),
)
def test_any_blocking_gives_the_same(level: str, cell: CellKind, blocking: Blocking) -> None:
    check(level, Case(cell=cell, units=75, batch=4, steps=4, backward=(False, True)), blocking)


@together(
    ("level", LEVELS),
    ("cell", CELLS),
    ("groups,units,batch", [(1, 3, 1), (2, 70, 2), (3, 130, 1), (5, 100, 8)]),
    ("backward", [False, True]),
)
def test_groups_of_a_step_may_be_shared(
    level: str, cell: CellKind, groups: int, units: int, batch: int, backward: bool
) -> None:
    for steps in (1, 2, 9):
        case = Case(cell=cell, units=units, batch=batch, steps=steps, backward=(backward,), gap=2, groups=groups)
        check(level, case, Blocking(1, min(batch, 3), 1), at_end=not backward)


@together(
    ("level", LEVELS),
    ("cell", CELLS),
    ("words,of_all", [("bfloat16", False), ("int8", False), ("int8", True), ("int16", False), ("int16", True)]),
    ("units,batch,groups", [(1, 1, 0), (17, 3, 0), (48, 1, 2), (70, 5, 0)]),
)
def test_rounded_states(
    level: str, cell: CellKind, words: Words, of_all: bool, units: int, batch: int, groups: int
) -> None:
    backward = (False,) if groups else (False, True)
    case = Case(cell=cell, units=units, batch=batch, groups=groups, words=words, of_all=of_all, backward=backward)
    check(level, replace(case, gap=3))
    if cell == "lstm":
        check(level, replace(case, projected=units // 2 or 1, groups=0) if units > 1 else case, at_end=False)


@pytest.mark.parametrize(("cell", "words"), [("lstm", "int8"), ("gru", "int8"), ("tanh", "int16")])
def test_integers_give_the_same_bytes_on_every_processor_that_fuses_products(cell: CellKind, words: Words) -> None:
    case = Case(cell=cell, units=37, batch=2, steps=9, words=words)
    gates = numbers(1, 9, 2, GATES[cell] * 37)
    initial = [numbers(1, 2, width) for width in case.states]
    first, *others = (computed(host, case, gates, initial, None, True) for host in HOSTS if host.has_fma)
    for sequence, finals in others:
        np.testing.assert_array_equal(sequence, first[0])
        for mine, theirs in zip(finals, first[1], strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize(("rows", "terms"), [(1, 1), (3, 21), (5, 64)])
def test_rows_are_rounded_in_place_of_a_state(level: str, of_all: bool, rows: int, terms: int) -> None:
    case = Case(cell="lstm", units=terms, words="int8", of_all=of_all)
    assert case.rounding is not None
    x = numbers(rows, terms + 2)
    kernel = RoundedRows(host=describe(level), rows=rows, source=terms + 2, rounding=case.rounding)
    target = guarded_array(np.full((rows, case.rounding.pitch), np.nan, np.float32))
    run(kernel, level, [guarded_array(x.reshape(-1)[: rows * (terms + 2) - 2]), target])
    codes = target[:, case.rounding.head :].copy().view(np.uint8)[:, :terms].astype(np.float64)
    np.testing.assert_allclose((codes - target[:, 1:2]) * target[:, :1], rounded(case, x[:, :terms]), rtol=1e-6)


@pytest.mark.parametrize("machine", MACHINES)
def test_steps_are_shared_if_few_rows_read_more_than_the_caches_of_a_core_hold(machine: str) -> None:
    host = MACHINES[machine]
    near = int(SHARED_SIZE * host.memory.second_bytes)
    assert not is_shared(host, weight_bytes=near, batch=1)
    assert is_shared(host, weight_bytes=near + 1, batch=1) and not is_shared(host, weight_bytes=near + 1, batch=64)
    assert (
        1
        < choose_groups(host, weight_bytes=near + 1, panels=32)
        <= choose_groups(host, weight_bytes=20 * near, panels=32)
    )
    assert choose_groups(host, weight_bytes=20 * near, panels=3) == 3


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cell", CELLS)
def test_nothing_before_its_memory_is_touched(level: str, cell: CellKind) -> None:
    check(level, Case(cell=cell, units=21, batch=3, backward=(False, True), gap=1), at_end=False)


@together(
    ("level", LEVELS),
    ("cell", CELLS),
    ("hoisted", [Hoisting(24, 4, 1), Hoisting(30, 3, 2), Hoisting(97, 2, 2)]),
)
def test_the_kernel_may_project_its_input_itself(level: str, cell: CellKind, hoisted: Hoisting) -> None:
    case = Case(cell=cell, units=32, steps=11, gap=3)
    computed_hoisted(level, case, hoisted, Blocking(2, 1, 1), at_end=True)
    computed_hoisted(level, case, hoisted, Blocking(1, 1, 1), at_end=False)
    computed_hoisted(level, replace(case, steps=8, backward=(True,)), hoisted, Blocking(1, 1, 1), at_end=True)


def test_a_layer_that_may_be_pipelined_has_one_row_and_weights_from_far() -> None:
    wide, narrow = describe("avx512"), describe("avx2")

    def found(host: Host, **changed: int) -> Hoisting | None:
        return choose_hoisting(host, **{"gates": 4, "units": 128, "steps": 100, "batch": 1, "width": 64, **changed})

    assert found(wide) == Hoisting(64, 8, 2)
    assert found(wide, gates=3, units=112) == Hoisting(64, 8, 1)
    assert found(narrow) is None
    for changed in ({"batch": 2}, {"units": 130}, {"units": 32}, {"steps": 15}):
        assert found(wide, **changed) is None


@pytest.mark.parametrize("machine", ["Zen 5", "Emerald Rapids"])
@pytest.mark.parametrize(("gates", "vectors"), [(4, 1), (3, 2)])
def test_rows_share_a_cached_panel_if_the_core_outpaces_its_loads(machine: str, gates: int, vectors: int) -> None:
    host = MACHINES[machine]
    found = choose_blocking(host, gates=gates, units=128, taps=128, batch=8)
    assert found == Blocking(vectors, 4, 1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_non_finite_values_propagate_as_in_the_formulas(cell: CellKind, number: float) -> None:
    case = Case(cell=cell, units=19, batch=2)
    gates = numbers(1, 5, 2, GATES[cell] * 19)
    gates[0, 2, 1, ::5] = number
    initial = [numbers(1, 2, width) for width in case.states]
    found, finals = computed(describe(LEVELS[0]), case, gates, initial, None, True)
    with np.errstate(all="ignore"):
        wanted, last = expected(case, gates[0].astype(np.float64), weights_of(case), [each[0] for each in initial])
    for mine, theirs in [(found[:, 0], wanted), *((a[0], b) for a, b in zip(finals, last, strict=True))]:
        usable = np.abs(np.nan_to_num(theirs, nan=0, posinf=0, neginf=0)) < 1e20
        np.testing.assert_allclose(mine[usable], theirs[usable], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_code_does_not_grow_with_the_sequence(level: str) -> None:
    def operations(**given: Any) -> int:
        sizes = {"steps": 3, "batch": 1, "units": 64, **given}
        state = States(sizes["units"], sizes["units"])
        kernel = Recurrence(
            host=describe(level), cell="lstm", source=Steps((512,), 512), sequence=Steps((512,), 512),
            initial=(state, state), final=(None, None), blocking=Blocking(2, 1, 1), **sizes,
        )  # fmt: skip
        kernel.emit(module := Module())
        return module.operations

    few = operations()
    for larger in ({"steps": 100_000}, {"batch": 7}, {"units": 1024}):
        assert operations(**larger) < few + 50


def test_many_rows_fall_into_chunks_and_few_stay_together() -> None:
    def chunks(batch: int, steps: int) -> int:
        state = States(128, 128)
        return Recurrence(
            host=describe(LEVELS[0]), cell="gru", steps=steps, batch=batch, units=128, source=Steps((999, -999), 999),
            sequence=None, initial=(state,), final=(state,), blocking=Blocking(4, 1, 1),
        ).chunks  # fmt: skip

    assert chunks(1, 100) == 2
    assert 4 <= chunks(8, 100) <= 16
    assert chunks(4, 1) == 2
    assert chunks(100, 100) <= 16
