"""Number of threads of this process, decided before numpy is imported.

BLAS libraries size their thread pools by the machine's cores when numpy loads them: in a container limited to two
cores of 64 these are 64 threads on two cores. So this module imports only the standard library and one file of the
engine, and the program sets its threads first.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from app.python_files import import_file

BLAS_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadBudget:
    """Number of threads and the limits it follows from; None means no limit."""

    affinity: int
    quota: float | None
    setting: int | None
    workers: int = 1

    @property
    def threads(self) -> int:
        """Return min(affinity, quota rounded down, setting) divided by the workers, at least 1.

        The quota is rounded down because the kernel stops a group that has used its quota for the rest of the period.
        """
        limits = [self.affinity, *([int(self.quota)] if self.quota else []), *([self.setting] if self.setting else [])]
        return max(1, min(limits) // self.workers)

    def __str__(self) -> str:
        quota = "none" if self.quota is None else f"{self.quota:g}"
        setting = "none" if self.setting is None else str(self.setting)
        workers = "" if self.workers == 1 else f", for each of {self.workers} workers"
        plural = "" if self.threads == 1 else "s"
        limits = f"cores allowed {self.affinity}, cgroup quota {quota}, setting {setting}{workers}"
        return f"{self.threads} thread{plural} ({limits})"


def thread_budget(setting: int | None = None, workers: int = 1) -> ThreadBudget:
    """Return the threads of one server process; setting is the user's limit for all workers together."""
    # ``import engine`` would import numpy.
    package = Path(getattr(find_spec("engine"), "origin", "")).parent
    resources = import_file(package / "memory" / "resources.py", "engine_resources")
    return ThreadBudget(affinity=resources.affinity(), quota=resources.cpu_quota(), setting=setting, workers=workers)


def limit_threads(threads: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the BLAS thread counts for a numpy that is imported later, unless the user has set them."""
    for name in BLAS_VARIABLES:
        environ.setdefault(name, str(threads))
