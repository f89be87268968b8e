"""What the machine is, as the kernel generators need to know it: its processor, its caches, what its threads share.

Nothing in a generator names one CPU or holds a number that describes one: it asks for the width of a vector, the
number of registers, the size of a cache. ``describe`` a narrower host to generate for it: AVX2 code runs on an AVX-512
machine.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from engine.errors import CompileError

# A byte of the last-level cache that costs no more comes soon enough for whatever reads it.
_SOON = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Caches of a core, and what a byte costs by where it comes from, in the time of one product of two vectors.

    Only what is felt counts: most of what a byte takes passes while the core computes. What stands here was found on
    Zen 4; ``measuring.judging`` brings it to what is measured elsewhere.

    Args:
        line_bytes: of a cache line.
        first_bytes, second_bytes, last_bytes: of the first-, second- and last-level cache.
        ahead_bytes: how far ahead of their use weights are fetched.
        strands: places from which weights that are used once are best read in turns.
        strand_ahead_bytes: how far ahead they are fetched in each of those.
        repeat_cost: of a byte that is read again from the second-level cache.
        stream_cost: of one that is read again from the last-level cache.
        memory_cost: of one that comes from memory.
        fetched_cost: of one that comes from there, but was fetched ahead.
        shared_cost: of one that comes from there where all threads wait for nothing else.
        spilled_cost: of one by which a chunk's own memory outgrows its share of the second-level cache.
    """

    line_bytes: int = 64
    first_bytes: int = 32 * 1024
    second_bytes: int = 1024 * 1024
    last_bytes: int = 32 * 1024 * 1024
    ahead_bytes: int = 4 * 1024
    strands: int = 1
    strand_ahead_bytes: int = 4 * 1024
    repeat_cost: float = 0.001
    stream_cost: float = 0.001
    memory_cost: float = 0.05
    fetched_cost: float = 0.015
    shared_cost: float = 0.12
    spilled_cost: float = 0.04

    @property
    def late_cost(self) -> float:
        """What a byte of the last-level cache costs a kernel that cannot wait for it; 0 where that one is fast."""
        return max(0.0, self.stream_cost - _SOON)

    @property
    def line_floats(self) -> int:
        """float32 elements of a cache line."""
        return self.line_bytes // 4

    @property
    def halved(self) -> Memory:
        """The same where elements of twice the size are counted as float32."""
        sizes = ("line_bytes", "first_bytes", "second_bytes", "last_bytes", "ahead_bytes", "strand_ahead_bytes")
        costs = ("repeat_cost", "stream_cost", "memory_cost", "fetched_cost", "shared_cost", "spilled_cost")
        return replace(
            self,
            **{name: getattr(self, name) // 2 for name in sizes},
            **{name: 2 * getattr(self, name) for name in costs},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A target of code generation.

    Args:
        name: ``avx512``, ``avx2``, ``sse`` or ``neon``.
        triple, cpu, features: LLVM's names.
        lanes: elements of a vector register, of float32 as all that is counted here.
        registers: vector registers.
        products_in_flight: products of two vectors that a core has begun and not ended, when it does nothing else.
        repeats_a_product: numbers in memory that it repeats in all lanes of a vector in the time of one product.
        repeats_from_memory: whether a product takes a number in memory, repeated in all lanes, without a register.
        registers_beside: of them, what products need beside sums and weights: numbers, and what LLVM loads ahead.
        memory: caches, and what a byte costs.
        chunk_flops: what a chunk should at least compute, in floating-point operations: some 5 µs of a core.
        chunk_bytes: what a chunk should at least move, in bytes, where arithmetic is cheap.
        wanted_chunks: pieces that a kernel should fall into, so that threads finish together.
        precision: what kernels compute with.
    """

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int
    products_in_flight: float = 8
    repeats_a_product: float = 1
    repeats_from_memory: bool = False
    registers_beside: int = 2
    memory: Memory = field(default_factory=Memory)
    chunk_flops: int = 500_000
    chunk_bytes: int = 64 * 1024
    wanted_chunks: int = 16
    precision: Literal["float", "double"] = "float"

    def most_rows(self, vectors: int) -> int:
        """Rows of sums, each as wide as so many vectors of weights, that registers hold beside those; 0 for none."""
        beside = self.registers_beside
        if vectors == 1 and not self.repeats_from_memory:
            beside += _ALONE
        return max(0, (self.registers - beside - vectors) // vectors)

    @property
    def has_dots(self) -> bool:
        """Whether one instruction multiplies four bytes of each word by four others, and adds them up."""
        return "+avx512vnni" in self.features

    @property
    def key(self) -> str:
        """All that generated code depends on."""
        return _key(self)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element that kernels compute with."""
        return 8 if self.precision == "double" else 4

    @property
    def of_doubles(self) -> Host:
        """The same for kernels of float64: they count elements as others do, which are twice as large here."""
        if self.precision == "double":
            return self
        return replace(
            self,
            precision="double",
            lanes=self.lanes // 2,
            memory=self.memory.halved,
            chunk_flops=self.chunk_flops // 2,
            chunk_bytes=self.chunk_bytes // 2,
        )


# Where each number is for one product alone, LLVM has so many more of them in registers.
_ALONE = 3
_X86_LEVELS = {
    "avx512": (16, 32, "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd"),
    "avx2": (8, 16, "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,-avx512f"),
    "sse": (4, 16, "+sse4.2,-avx,-avx2,-fma,-avx512f"),
}  # fmt: skip
# Seen in what LLVM makes of them: with a register less beside, sums of an innermost loop lie on the stack.
_BESIDE = {"avx512": 1, "avx2": 2, "sse": 5, "neon": 4}
_NEEDS = {"avx512": ("avx512f", "avx512vl", "avx512bw", "avx512dq"), "avx2": ("avx2", "fma"), "sse": ("sse4.2",)}

# Products of small integers added up in one instruction, which LLVM would split in two.
_FURTHER = {"avx512": {"avx512vnni": ",+avx512vnni,+fast-dpwssd"}}


def detect() -> Host:
    """The processor this process runs on.

    Raises:
        CompileError: a processor there is no generator for.
    """
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return describe("neon", cpu=str(import_llvm().get_host_cpu_name()))
    if machine not in ("x86_64", "amd64"):
        raise CompileError("no code generator for this processor", found=machine, expected="x86_64 or aarch64")
    has = _features()
    for name, needed in _NEEDS.items():
        if all(has.get(feature) for feature in needed):
            host = describe(name)
            return replace(host, features=host.features + _further(name, has))
    raise CompileError("the processor lacks SSE 4.2", found=cpu_name())


def further_features() -> str:
    """What this processor can do beyond the level of its code, and code made for it alone uses."""
    has = _features()
    return next((_further(name, has) for name, needed in _NEEDS.items() if all(map(has.get, needed))), "")


def _further(name: str, has: Mapping[str, bool]) -> str:
    rows = _FURTHER.get(name, {}).items()
    return "".join(text for each, text in rows if has.get(each) or has.get(each.replace("avx512", "avx512_")))


def supports(name: str) -> bool:
    """Whether this processor runs the code of a level."""
    machine = platform.machine().lower()
    if name == "neon":
        return machine in ("aarch64", "arm64")
    if name not in _NEEDS or machine not in ("x86_64", "amd64"):
        return False
    has = _features()
    return all(has.get(feature) for feature in _NEEDS[name])


def import_llvm() -> Any:
    """LLVM.

    Raises:
        CompileError: llvmlite cannot be imported.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError as exc:
        raise CompileError("llvmlite cannot be imported, so there is no compiler", found=str(exc)) from exc
    return llvm


def _features() -> Mapping[str, bool]:
    """What the processor can do, and the system lets it, by LLVM's names."""
    flags = _cpu_info().get("flags")
    if flags is None:
        found: Mapping[str, bool] = import_llvm().get_host_cpu_features()
        return found
    return dict.fromkeys(flags.replace("sse4_2", "sse4.2").split(), True)


def cpu_name() -> str:
    """The processor as its maker calls it, or else as LLVM does."""
    return _cpu_info().get("model name") or str(import_llvm().get_host_cpu_name())


def cpu_model() -> tuple[str, int, int]:
    """Return the processor's maker, family and model as Linux has them; empty and 0 where it does not say."""
    info = _cpu_info()
    numbers = (info.get(name, "") for name in ("cpu family", "model"))
    family, model = (int(each) if each.isdecimal() else 0 for each in numbers)
    return info.get("vendor_id", ""), family, model


@lru_cache(maxsize=1)
def _cpu_info() -> Mapping[str, str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    rows = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def describe(name: str, cpu: str | None = None) -> Host:
    """A host by its level: ``avx512``, ``avx2``, ``sse`` or ``neon``.

    Raises:
        CompileError: no such level.
    """
    if name == "neon":
        return Host(
            name=name,
            triple="aarch64-unknown-linux-gnu",
            cpu=cpu or "generic",
            features="+neon",
            lanes=4,
            registers=32,
            registers_beside=_BESIDE[name],
        )
    if name not in _X86_LEVELS:
        raise CompileError("unknown processor level", found=name, expected="avx512, avx2, sse or neon")
    lanes, registers, features = _X86_LEVELS[name]
    # Tuning for the generic x86-64 lets LLVM keep 512-bit vectors; the features say what may be used.
    return Host(
        name=name,
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64",
        features=features,
        lanes=lanes,
        registers=registers,
        # Narrow vectors are multiplied in pairs; of wide ones most processors begin one a cycle.
        products_in_flight=4 if name == "avx512" else 8,
        repeats_a_product=2 if name == "avx512" else 1,
        repeats_from_memory=name == "avx512",
        registers_beside=_BESIDE[name],
    )


@lru_cache(maxsize=8)
def _key(host: Host) -> str:
    return "/".join(map(str, astuple(host)))
