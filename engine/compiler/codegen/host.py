"""Description of the target machine for kernel generators: processor, caches, memory costs.

No generator names a CPU or contains a number that describes one: it uses the vector width, the number of registers, the
size of a cache. ``describe`` a narrower host to generate for it: AVX2 code runs on an AVX-512 machine.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from engine.compiler.codegen.tile_permission import may_use_tiles
from engine.errors import CompileError

# Cost up to which a byte of the last-level cache delays no kernel.
_SOON = 0.04
# Extra registers LLVM uses for broadcast values if each serves a single product.
_ALONE = 3
_X86_LEVELS = {
    "avx512": (16, 32, "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd"),
    "avx2": (8, 16, "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,-avx512f"),
    "sse": (4, 16, "+sse4.2,-avx,-avx2,-fma,-avx512f"),
}  # fmt: skip
# Observed in LLVM's output: with one register fewer, sums of an innermost loop are spilled.
_BESIDE = {"avx512": 1, "avx2": 2, "sse": 5, "neon": 4}
_NEEDS = {"avx512": ("avx512f", "avx512vl", "avx512bw", "avx512dq"), "avx2": ("avx2", "fma"), "sse": ("sse4.2",)}
# Dot products in one instruction, and tables; LLVM would otherwise split those of integers in two.
_FURTHER = {
    "avx512": {
        "avx512vnni": ",+avx512vnni,+fast-dpwssd",
        "avx512bf16": ",+avx512bf16",
        "avx512vbmi": ",+avx512vbmi",
        "amx-int8": ",+amx-tile,+amx-int8",
        "amx-bf16": ",+amx-tile,+amx-bf16",
    },
    "avx2": {"avxvnni": ",+avxvnni,+fast-dpwssd"},
}
# LLVM's names of features -> those of Linux, where they differ.
_LINUX_NAMES = {"avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "avxvnni": "avx_vnni"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Caches of a core, and the cost of a byte by its origin, relative to a product of two vectors.

    Only visible time counts: most of a transfer overlaps with computation. The defaults were measured on Zen 4;
    ``measuring.cost_parameters`` replaces them by measurements of other machines.

    Args:
        line_bytes: of a cache line.
        first_bytes, second_bytes, last_bytes: sizes of the L1, L2 and last-level cache.
        ahead_bytes: prefetch distance of weights.
        streams: number of streams in which weights that are used once are best read.
        stream_ahead_bytes: prefetch distance in each of those streams.
        repeat_cost: of a byte read again from the L2 cache.
        stream_cost: of a byte read again from the last-level cache.
        memory_cost: of a byte from memory.
        fetched_cost: of a prefetched byte from memory.
        shared_cost: of a byte from memory when all threads are limited by memory.
        spilled_cost: of a byte by which a chunk's scratch memory exceeds its share of the L2 cache.
    """

    line_bytes: int = 64
    first_bytes: int = 32 * 1024
    second_bytes: int = 1024 * 1024
    last_bytes: int = 32 * 1024 * 1024
    ahead_bytes: int = 4 * 1024
    streams: int = 1
    stream_ahead_bytes: int = 4 * 1024
    repeat_cost: float = 0.001
    stream_cost: float = 0.001
    memory_cost: float = 0.05
    fetched_cost: float = 0.015
    shared_cost: float = 0.12
    spilled_cost: float = 0.04

    @property
    def late_cost(self) -> float:
        """Return the cost of a byte of the last-level cache that a kernel waits for; 0 if the cache is fast."""
        return max(0.0, self.stream_cost - _SOON)

    @property
    def line_floats(self) -> int:
        """Return the float32 elements of a cache line."""
        return self.line_bytes // 4

    @property
    def halved(self) -> Memory:
        """Return these figures for elements of twice the size that are counted as float32."""
        sizes = ("line_bytes", "first_bytes", "second_bytes", "last_bytes", "ahead_bytes", "stream_ahead_bytes")
        costs = ("repeat_cost", "stream_cost", "memory_cost", "fetched_cost", "shared_cost", "spilled_cost")
        return replace(
            self,
            **{name: getattr(self, name) // 2 for name in sizes},
            **{name: 2 * getattr(self, name) for name in costs},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Target of code generation.

    Args:
        name: ``avx512``, ``avx2``, ``sse`` or ``neon``.
        triple, cpu, features: LLVM's names.
        lanes: float32 elements of a vector register, the unit of all counts here.
        registers: vector registers.
        products_in_flight: vector products a core can have in flight (latency times throughput).
        repeats_a_product: broadcast loads in the time of one product.
        broadcasts_from_memory: whether a product takes a broadcast memory operand without a register.
        reserved_registers: registers products need besides sums and weights: broadcast values and LLVM's early loads.
        memory: caches, and costs of a byte.
        chunk_flops: least floating-point operations of a chunk: about 5 µs of a core.
        chunk_bytes: least bytes moved by a chunk, where arithmetic is cheap.
        wanted_chunks: number of chunks of a kernel, so that threads finish together.
        precision: type kernels compute with.
    """

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int
    products_in_flight: float = 8
    repeats_a_product: float = 1
    broadcasts_from_memory: bool = False
    reserved_registers: int = 2
    memory: Memory = field(default_factory=Memory)
    chunk_flops: int = 500_000
    chunk_bytes: int = 64 * 1024
    wanted_chunks: int = 16
    precision: Literal["float", "double"] = "float"

    def most_rows(self, vectors: int) -> int:
        """Return the rows of sums, each ``vectors`` wide, that fit in registers with the weights; 0 if none fits."""
        reserved = self.reserved_registers
        if vectors == 1 and not self.broadcasts_from_memory:
            reserved += _ALONE
        return max(0, (self.registers - reserved - vectors) // vectors)

    @property
    def has_vnni(self) -> bool:
        """Return whether the processor has 8-bit dot product instructions (VNNI)."""
        return "+avx512vnni" in self.features or "+avxvnni" in self.features

    @property
    def multiplies_pairs(self) -> bool:
        """Return whether an instruction multiplies pairs of 16-bit integers and adds the two products."""
        return self.triple.startswith("x86_64")

    @property
    def has_fma(self) -> bool:
        """Return whether a product and a sum are rounded once."""
        return "+fma" in self.features or self.name == "neon"

    @property
    def has_bfloat16(self) -> bool:
        """Return whether the processor has dot product instructions of bfloat16."""
        return "+avx512bf16" in self.features

    @property
    def has_byte_tables(self) -> bool:
        """Return whether the processor looks up bytes in tables of 128 entries."""
        return "+avx512vbmi" in self.features

    @property
    def has_word_tables(self) -> bool:
        """Return whether the processor looks up 16-bit numbers in tables of 32 entries."""
        return "+avx512bw" in self.features

    @property
    def key(self) -> str:
        """Return a key of everything generated code depends on."""
        return _key(self)

    @property
    def element_bytes(self) -> int:
        """Return the bytes of an element kernels compute with."""
        return 8 if self.precision == "double" else 4

    @property
    def of_doubles(self) -> Host:
        """Return this host for float64 kernels, whose elements are twice as large as those counted."""
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


_LINUX_NAMES |= {"amx-int8": "amx_int8", "amx-bf16": "amx_bf16"}


def detect() -> Host:
    """Return the host this process runs on.

    Raises:
        CompileError: there is no code generator for this processor.
    """
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return describe("neon", cpu=str(import_llvm().get_host_cpu_name()))
    if machine not in ("x86_64", "amd64"):
        raise CompileError("the compiler does not support this processor", found=machine, expected="x86_64 or aarch64")
    has = _features()
    for name, needed in _NEEDS.items():
        if all(has.get(feature) for feature in needed):
            host = describe(name)
            return replace(host, features=host.features + _further(name, has))
    raise CompileError("the processor does not support SSE 4.2", found=cpu_name())


def further_features() -> str:
    """Return the features of this processor beyond its level that code compiled for it uses."""
    has = _features()
    return next((_further(name, has) for name, needed in _NEEDS.items() if all(map(has.get, needed))), "")


def _further(name: str, has: Mapping[str, bool]) -> str:
    rows = _FURTHER.get(name, {}).items()
    found = {each: text for each, text in rows if has.get(each) or has.get(_LINUX_NAMES.get(each, each))}
    are_tiles_allowed = any("+amx" in text for text in found.values()) and may_use_tiles()
    return "".join(text for text in found.values() if are_tiles_allowed or "+amx" not in text)


def supports(name: str) -> bool:
    """Return whether this processor runs the code of a level."""
    machine = platform.machine().lower()
    if name == "neon":
        return machine in ("aarch64", "arm64")
    if name not in _NEEDS or machine not in ("x86_64", "amd64"):
        return False
    has = _features()
    return all(has.get(feature) for feature in _NEEDS[name])


def import_llvm() -> Any:
    """Return the LLVM binding.

    Raises:
        CompileError: llvmlite cannot be imported.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError as exc:
        raise CompileError("llvmlite cannot be imported, so there is no compiler", found=str(exc)) from exc
    return llvm


def _features() -> Mapping[str, bool]:
    """Return the features of the processor that the system enables, by LLVM's names."""
    flags = _cpu_info().get("flags")
    if flags is None:
        found: Mapping[str, bool] = import_llvm().get_host_cpu_features()
        return found
    return dict.fromkeys(flags.replace("sse4_2", "sse4.2").split(), True)


def cpu_name() -> str:
    """Return the processor's model name, or else LLVM's name for it."""
    return _cpu_info().get("model name") or str(import_llvm().get_host_cpu_name())


def cpu_model() -> tuple[str, int, int]:
    """Return vendor, family and model as reported by Linux; empty and 0 if it does not say."""
    info = _cpu_info()
    numbers = (info.get(name, "") for name in ("cpu family", "model"))
    family, model = (int(each) if each.isdecimal() else 0 for each in numbers)
    return info.get("vendor_id", ""), family, model


@lru_cache(maxsize=1)
def _cpu_info() -> Mapping[str, str]:
    """Return what Linux reports of the first processor; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    rows = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def describe(name: str, cpu: str | None = None) -> Host:
    """Return a host by its level: ``avx512``, ``avx2``, ``sse`` or ``neon``.

    Raises:
        CompileError: unknown level.
    """
    if name == "neon":
        return Host(
            name=name,
            triple="aarch64-unknown-linux-gnu",
            cpu=cpu or "generic",
            features="+neon",
            lanes=4,
            registers=32,
            reserved_registers=_BESIDE[name],
        )
    if name not in _X86_LEVELS:
        raise CompileError("unknown processor level", found=name, expected="avx512, avx2, sse or neon")
    lanes, registers, features = _X86_LEVELS[name]
    # Tuning for generic x86-64 lets LLVM keep 512-bit vectors; the features say which instructions to use.
    return Host(
        name=name,
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64",
        features=features,
        lanes=lanes,
        registers=registers,
        # Most processors start two narrow vector products a cycle, but only one wide product.
        products_in_flight=4 if name == "avx512" else 8,
        repeats_a_product=2 if name == "avx512" else 1,
        broadcasts_from_memory=name == "avx512",
        reserved_registers=_BESIDE[name],
    )


@lru_cache(maxsize=8)
def _key(host: Host) -> str:
    return "/".join(map(str, astuple(host)))
