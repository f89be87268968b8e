"""Options of a session: made and checked once, then passed to everything that compiles and runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from engine.errors import ParameterError
from engine.passes import LOWERING_PASSES, PASSES

Backend: TypeAlias = Literal["auto", "compiled", "reference"]
Winograd: TypeAlias = Literal["auto", "off"]
Precision: TypeAlias = Literal["float32", "bf16", "auto"]

CACHE_MAX_BYTES: Final = 4 << 30
# Graph optimisations that can be left out.
PASS_NAMES: Final = (*PASSES, *LOWERING_PASSES)
# The most threads of one run: more than any machine has cores, and few enough to be started.
MAX_THREADS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of how a session runs its graphs; ``Session`` describes them in full.

    Args:
        backend: ``auto``, ``compiled`` or ``reference``.
        threads: threads of a run; None for all cores this process may use.
        winograd: ``auto``, or ``off`` for convolutions that are summed directly.
        precision: of products: ``float32``; or ``bf16`` or ``auto`` for bfloat16 where it is faster.
        passes_off: names of passes to leave out.
        cache: folder of the program cache; None for no cache.
        cache_max_bytes: size limit of the cache folder.
        instances_max_bytes: memory for shapes other than the file's, in all graphs of the process together; None for a
            quarter of the memory.

    Raises:
        ParameterError: an unknown backend, winograd mode, precision or pass, or an invalid number of threads.
    """

    backend: Backend = "auto"
    threads: int | None = None
    winograd: Winograd = "auto"
    precision: Precision = "float32"
    passes_off: frozenset[str] = frozenset()
    cache: Path | None = None
    cache_max_bytes: int = CACHE_MAX_BYTES
    instances_max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise ParameterError("threads must be positive", found=self.threads, expected=f"at most {MAX_THREADS}")
        if self.backend not in ("auto", "compiled", "reference"):
            raise ParameterError("unknown backend", found=repr(self.backend), expected="auto, compiled or reference")
        if self.winograd not in ("auto", "off"):
            raise ParameterError("unknown winograd mode", found=repr(self.winograd), expected="auto or off")
        if self.precision not in ("float32", "bf16", "auto"):
            raise ParameterError("unknown precision", found=repr(self.precision), expected="float32, bf16 or auto")
        unknown = sorted(self.passes_off - set(PASS_NAMES))
        if unknown:
            raise ParameterError("unknown pass", found=", ".join(unknown), expected=f"one of {', '.join(PASS_NAMES)}")

    @property
    def must_compile(self) -> bool:
        """Return whether the reference may not run operators that cannot be compiled."""
        return self.backend == "compiled"


def cache_folder(cache: str | os.PathLike[str] | None) -> Path | None:
    """Return the cache folder: the user's for ``auto``, the one given, or None.

    ``auto`` is ``pnnx-serve`` in the user's folder for caches, as the XDG base directory specification has it.
    """
    if cache != "auto":
        return None if cache is None else Path(cache)
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "pnnx-serve"
    except RuntimeError:  # a user without a name and without a home
        return None
