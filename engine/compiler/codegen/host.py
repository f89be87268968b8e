"""What the processor can do, as the kernel generators need to know it.

Nothing in a generator names one CPU: it asks for the width of a vector, the number of registers and whether there is a
fused multiply-add. ``describe`` a narrower host to generate for it: AVX2 code runs on an AVX-512 machine.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import llvmlite.binding as llvm

from engine.errors import CompileError


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A target of code generation.

    Args:
        name: ``avx512``, ``avx2``, ``sse`` or ``neon``.
        triple, cpu, features: LLVM's names.
        lanes: float32 elements of a vector register.
        registers: vector registers.
    """

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int

    @property
    def key(self) -> str:
        """All that generated code depends on."""
        return f"{self.triple}/{self.cpu}/{self.features}/{self.lanes}x{self.registers}"


_X86_LEVELS = {
    "avx512": (16, 32, "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd"),
    "avx2": (8, 16, "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,-avx512f"),
    "sse": (4, 16, "+sse4.2,-avx,-avx2,-fma,-avx512f"),
}  # fmt: skip
_NEEDS = {"avx512": ("avx512f", "avx512vl", "avx512bw", "avx512dq"), "avx2": ("avx2", "fma"), "sse": ("sse4.2",)}


def detect() -> Host:
    """The processor this process runs on.

    Raises:
        CompileError: a processor there is no generator for.
    """
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return describe("neon", cpu=str(llvm.get_host_cpu_name()))
    if machine not in ("x86_64", "amd64"):
        raise CompileError("no code generator for this processor", found=machine, expected="x86_64 or aarch64")
    has = llvm.get_host_cpu_features()
    for name, needed in _NEEDS.items():
        if all(has.get(feature) for feature in needed):
            return describe(name)
    raise CompileError("the processor lacks SSE 4.2", found=str(llvm.get_host_cpu_name()))


def describe(name: str, cpu: str | None = None) -> Host:
    """A host by its level: ``avx512``, ``avx2``, ``sse`` or ``neon``.

    Raises:
        CompileError: no such level.
    """
    if name == "neon":
        return Host(
            name=name, triple="aarch64-unknown-linux-gnu", cpu=cpu or "generic", features="+neon", lanes=4, registers=32
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
    )
