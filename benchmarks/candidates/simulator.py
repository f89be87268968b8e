"""Cost of inner functions on a core that is not at hand, by LLVM's simulator llvm-mca on their assembly.

It knows ports, latencies and the instructions that a core issues in a cycle, but neither caches (everything is in L1)
nor branch mispredictions. Where its tables are known to be wrong, its input is changed, with the reason in a comment.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host

_LABEL = re.compile(r"^([\w.$]+):")
_JUMP = re.compile(r"\s*(j\w+|b|b\.\w+|cbn?z|tbn?z|ret|retq)(\s|$)")
_PRODUCT = re.compile(r"\s*(vfn?m\w+231\w+|vfmadd\w+|fmla)\s")
_LOAD = re.compile(r"\b(vbroadcastss|vmovups|vmovaps)(\s+[^,%{]*\([^)]*\)), %[xyz]mm(\d+)$")
_COMMENT = re.compile(r"\s#+ |\s// ")
_TURNS = 100


@dataclass(frozen=True, slots=True)
class Core:
    """Core, as llvm-mca describes it.

    Args:
        cpu: the scheduling model.
        dispatch: instructions issued in a cycle; 0 for the model's number.
        load, repeat: instructions that stand for a vector load and for a broadcast load. LLVM 19 counts both as a load
            and a shuffle, but the measured rate of broadcasts is that of loads.
    """

    cpu: str
    dispatch: int = 0
    load: str = ""
    repeat: str = ""


_ONE_LOAD = "vmovntdqa{place}, %zmm{register}"
CORES = {
    "Zen 4": Core("znver4", repeat="vmovss{place}, %xmm{register}"),
    # LLVM 19 gives Sapphire Rapids and Ice Lake one unit for products of 512 bits; two were measured on Emerald Rapids.
    # Skylake's tables have two, and the same loads and stores; what begins six instructions in a cycle is told so.
    "Emerald Rapids": Core("skylake-avx512", 6, _ONE_LOAD, _ONE_LOAD),
    "Skylake": Core("skylake-avx512", 4, _ONE_LOAD, _ONE_LOAD),
    "Neoverse": Core("neoverse-n2"),
}


class NoSimulatorError(Exception):
    """Raised if llvm-mca is not installed."""


def simulator() -> str:
    """Return the path of llvm-mca.

    Raises:
        NoSimulatorError: it is not installed.
    """
    for name in (*(f"llvm-mca-{version}" for version in range(25, 15, -1)), "llvm-mca"):
        if found := shutil.which(name):
            return found
    raise NoSimulatorError("there is no llvm-mca: apt-get install llvm")


@dataclass(frozen=True, slots=True)
class Timing:
    """Simulated times of a function.

    Args:
        turn: cycles of a turn of its loop with most products; 0.0 where it has none.
        products: in a turn.
        rest: cycles of all else, once.
    """

    turn: float
    products: int
    rest: float


def timing(text: str, function: str, host: Host, core: Core) -> Timing:
    """Return the times of a module's function on a core.

    Args:
        text: the module's IR.

    Raises:
        NoSimulatorError: there is no llvm-mca.
    """
    blocks = _blocks(object_code.assembly(text, host), function)
    loops = [lines for label, lines in blocks if lines and _is_turn(label, lines[-1])]
    loop = max(loops, key=_products, default=[])
    rest = [line for _, lines in blocks if lines is not loop for line in lines if not _JUMP.match(line)]
    count = _products(loop)
    turn, ends = (_cycles(tuple(lines), host.triple, core) for lines in (loop, rest))
    return Timing(turn, count, ends)


def _products(lines: list[str]) -> int:
    return sum(_PRODUCT.match(line) is not None for line in lines)


def _blocks(assembly: str, function: str) -> list[tuple[str, list[str]]]:
    """Return the basic blocks of a function: label, instructions."""
    found: list[tuple[str, list[str]]] = []
    is_inside = False
    for line in assembly.splitlines():
        if label := _LABEL.match(line):
            if not label[1].startswith(".L"):
                is_inside = label[1] == function
            found.append((label[1], []))
        elif is_inside and found and line.startswith("\t") and not line.startswith("\t."):
            found[-1][1].append(_COMMENT.split(line)[0].rstrip())
            if _JUMP.match(line):
                found.append(("", []))
    return found


def _is_turn(label: str, last: str) -> bool:
    return bool(label) and _JUMP.match(last) is not None and last.endswith(label)


@lru_cache(maxsize=4096)
def _cycles(lines: tuple[str, ...], triple: str, core: Core) -> float:
    """Return the cycles of a repeated block."""
    if not lines:
        return 0.0

    def plain(found: re.Match[str]) -> str:
        form = core.repeat if found[1] == "vbroadcastss" else core.load
        return form.format(place=found[2], register=found[3]) if form else found[0]

    options = [f"-mtriple={triple}", f"-mcpu={core.cpu}", f"-iterations={_TURNS}", f"-dispatch={core.dispatch}"]
    text = "\n".join(_LOAD.sub(plain, line) for line in lines)
    done = subprocess.run(
        [simulator(), *options, "--json"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    cycles: int = found["CodeRegions"][0]["SummaryView"]["TotalCycles"]
    return cycles / _TURNS
