"""Choices for described machines, compared with a search on simulated cores."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.candidates import simulator
from benchmarks.candidates.machine import Machine, pointwise
from benchmarks.candidates.search import tiles_of
from benchmarks.candidates.simulator import CORES, NoSimulatorError
from engine.compiler.kernels.convolution.tiles import ConvTile, choose_tile
from tests.engine.compiler.machines import MACHINES


@pytest.fixture(scope="module")
def machine() -> Machine:
    try:
        simulator.simulator()
    except NoSimulatorError:
        pytest.skip("llvm-mca is not installed")
    return Machine("Emerald Rapids")


def test_every_simulated_core_is_a_described_machine() -> None:
    assert CORES.keys() <= MACHINES.keys()


def test_without_the_simulator_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoSimulatorError, match="apt-get install llvm"):
        simulator.simulator()


def test_loops_are_found_in_either_assembly_language() -> None:
    text = "f:\n\tmovl %eax, %ebx # a copy\n.L1:\n\taddl $1, %ebx\n\tjne\t.L1\n\tretq\n"
    assert simulator._blocks(text, "f")[1] == (".L1", ["\taddl $1, %ebx", "\tjne\t.L1"])
    text = "f:\n.L1:\n\tadd\tx8, x8, #1\n\tb.lt\t.L1\n\tret\n"
    label, lines = simulator._blocks(text, "f")[1]
    assert lines == ["\tadd\tx8, x8, #1", "\tb.lt\t.L1"] and simulator._is_turn(label, lines[-1])


def test_every_tile_fits_the_registers() -> None:
    host = MACHINES["Emerald Rapids"]
    tiles = list(tiles_of(host, 56, 56, 256))
    assert ConvTile(1, 14, 2) in tiles and ConvTile(2, 7, 2) in tiles
    assert all((tile.rows * tile.columns + 1) * tile.vectors < host.registers for tile in tiles)


def test_the_probes_find_on_a_simulated_core_what_was_measured_on_such_a_one(machine: Machine) -> None:
    probed = machine.probed()
    assert probed["products"] == 2
    assert probed["latency"] == pytest.approx(4, rel=0.05) and probed["repeats"] == pytest.approx(2, rel=0.05)


def test_the_chosen_tile_is_simulated_to_be_no_slower_than_the_one_it_replaced(machine: Machine) -> None:
    """hosts.md: 127 GFLOP/s with 28 × 1, 139 with 14 × 2."""
    kernel = pointwise(machine.host, choose_tile(machine.host, 1, 784, 256, 256), 784, 256, 8)
    chosen, other = (machine.direct(kernel, tile) for tile in (kernel.tile, ConvTile(1, 28, 1)))
    assert kernel.tile.vectors == 2 and chosen < 0.97 * other
