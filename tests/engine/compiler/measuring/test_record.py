"""Starts measure nothing; a calibration is stored, and used only if it is plausible."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import engine
from engine.compiler.codegen import host as hosts
from engine.compiler.codegen.host import describe, detect
from engine.compiler.measuring import machines, record
from engine.compiler.measuring.bench import measure
from engine.compiler.measuring.caches import Caches
from engine.compiler.measuring.cost_parameters import Rates, host_from_rates
from engine.compiler.measuring.machines import RATES
from engine.options import Options
from tests.engine.compiler.measuring.test_cost_parameters import rates


class Measured:
    """Fake measurement: counts its calls and returns the next rates."""

    def __init__(self) -> None:
        self.count = 0
        self.result = rates()

    def __call__(self, host: object, caches: Caches) -> Rates:
        self.count += 1
        return dataclasses.replace(self.result, caches=caches)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    found = Measured()
    monkeypatch.setattr(record, "measure", found)
    record._measured.cache_clear()
    return found


def processor(monkeypatch: pytest.MonkeyPatch, maker: str, family: int, model: int, flags: str) -> None:
    info = {"vendor_id": maker, "cpu family": str(family), "model": str(model), "flags": flags, "model name": "some"}
    monkeypatch.setattr(hosts, "_cpu_info", lambda: info)


WIDE = "sse4_2 avx2 fma avx512f avx512vl avx512bw avx512dq"


@pytest.mark.parametrize(
    ("maker", "family", "model", "flags", "name"),
    [
        ("AuthenticAMD", 25, 1, "sse4_2 avx2 fma", "Zen 3"),
        ("AuthenticAMD", 25, 17, WIDE, "Zen 4"),
        ("AuthenticAMD", 26, 2, WIDE, "Zen 5"),
        ("GenuineIntel", 6, 207, WIDE, "Emerald Rapids"),
        ("GenuineIntel", 6, 143, WIDE, "Emerald Rapids"),
        ("GenuineIntel", 6, 173, WIDE, "Granite Rapids"),
    ],
)
def test_kernels_are_chosen_by_micro_architecture_and_nothing_is_measured(
    maker: str, family: int, model: int, flags: str, name: str, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, maker, family, model, flags)
    caches = Caches(64, 32 << 10, 2 << 20, 64 << 20)
    monkeypatch.setattr(record, "find_caches", lambda: caches)
    known = dataclasses.replace(RATES[name][1], caches=caches)
    assert record.this_host(Options(cache=None)) == host_from_rates(detect(), known) and measured.count == 0


@pytest.mark.parametrize(
    ("maker", "family", "model", "flags"),
    [("AuthenticAMD", 23, 1, "sse4_2 avx2 fma"), ("AuthenticAMD", 25, 17, "sse4_2 avx2 fma"), ("", 0, 0, "sse4_2")],
)
def test_an_unlisted_processor_has_the_defaults_of_its_level_and_its_own_caches(
    maker: str, family: int, model: int, flags: str, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, maker, family, model, flags)
    monkeypatch.setattr(record, "find_caches", lambda: Caches(64, 48 << 10, 2 << 20, 0))
    found, usual = record.this_host(Options(cache=None)), describe("avx2" if "avx2" in flags else "sse")
    memory = dataclasses.replace(usual.memory, first_bytes=48 << 10, second_bytes=2 << 20, last_bytes=2 << 20)
    assert found == dataclasses.replace(usual, memory=memory) and measured.count == 0


def test_a_calibrated_machine_has_the_measured_rates(measured: Measured, tmp_path: Path) -> None:
    rates = record.rates_of(detect(), tmp_path, again=True)
    assert measured.count == 1
    found, ahead = record.this_host(Options(cache=tmp_path)), record.this_host(Options(cache=None)).memory
    measured_host = host_from_rates(detect(), rates)
    assert (found.chunk_flops, found.memory.memory_cost) == (
        measured_host.chunk_flops,
        measured_host.memory.memory_cost,
    )
    assert (found.memory.ahead_bytes, found.memory.streams) == (ahead.ahead_bytes, ahead.streams)
    assert record.rates_of(detect(), tmp_path) == rates and measured.count == 1
    measured.result = dataclasses.replace(measured.result, memory=40e9)
    assert record.rates_of(detect(), tmp_path, again=True).memory == 40e9
    assert record.rates_of(detect(), tmp_path).memory == 40e9 and measured.count == 2


def test_a_machine_without_a_calibration_is_measured_once_to_be_described(measured: Measured, tmp_path: Path) -> None:
    assert record.rates_of(detect(), tmp_path) == record.rates_of(detect(), None) and measured.count == 1
    assert list(tmp_path.iterdir()) == []


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: path.write_bytes(b"{"),
    "nested": lambda path: path.write_bytes(b"[" * 60_000),
    "a list": lambda path: path.write_bytes(b"[]"),
    "a number missing": lambda path: path.write_bytes(json.dumps({"threads": 2}).encode()),
    "not a number": lambda path: path.write_bytes(path.read_bytes().replace(b"3660000000.0", b"NaN")),
    "without end": lambda path: path.write_bytes(path.read_bytes().replace(b"3660000000.0", b"1e999")),
    "more digits than a float has": lambda path: path.write_bytes(
        path.read_bytes().replace(b"3660000000.0", b"9" * 400)
    ),
    "threads without end": lambda path: path.write_bytes(
        re.sub(rb'"threads": \d+', b'"threads": 1e999', path.read_bytes())
    ),
    "too fast": lambda path: path.write_bytes(path.read_bytes().replace(b"3660000000.0", b"1e30")),
    "very long": lambda path: path.write_bytes(b" " * 10**6 + path.read_bytes()),
    "anybody may write": lambda path: path.chmod(0o666),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.rename(path.with_suffix(".other")), path.symlink_to(path.with_suffix(".other"))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_implausible_calibration_is_ignored(damage: str, measured: Measured, tmp_path: Path) -> None:
    record.rates_of(detect(), tmp_path, again=True)
    (path,) = tmp_path.iterdir()
    DAMAGE[damage](path)
    assert record.this_host(Options(cache=tmp_path)) == record.this_host(Options(cache=None))


def test_a_folder_that_cannot_be_written_is_ignored(measured: Measured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert record.rates_of(detect(), tmp_path / "file", again=True).products == measured.result.products
    assert record.this_host(Options(cache=tmp_path / "file")) == record.this_host(Options(cache=None))


def test_the_table_names_only_micro_architectures_it_has_rates_of() -> None:
    models = [each for maker in machines._MAKERS.values() for family in maker.values() for each in family.values()]
    assert set(models) <= RATES.keys()


def test_this_machine_can_be_measured() -> None:
    found = measure(detect(), seconds=0)
    assert found.products > found.chained and min(found.second, found.last, found.memory, found.memory_shared) > 1e6


def test_a_description_has_the_rates_and_the_cost_parameters(measured: Measured, tmp_path: Path) -> None:
    told = engine.describe_host(tmp_path)
    assert told["measured"]["memory_bytes_per_s"] == 30e9 and told["lanes"] == detect().lanes
    assert json.loads(json.dumps(told)) == told


def test_a_calibration_that_other_users_can_write_to_is_not_read(tmp_path: Path) -> None:
    record._store(tmp_path, "key", rates())
    assert json.loads(record._content(tmp_path, "key"))["threads"] == rates().threads
    (tmp_path / "key").chmod(0o666)
    with pytest.raises(PermissionError):
        record._content(tmp_path, "key")


def test_a_calibration_that_cannot_be_stored_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    record._store(tmp_path / "file", "key", rates())
    assert (tmp_path / "file").read_text() == "no folder"
