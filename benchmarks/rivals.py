"""The engines: each makes a function from inputs to outputs, all in float32 on T threads.

A library is imported when its engine is made, so that no process holds more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

from app.measuring.contest import RIVALS, Array, Rival, Run
from benchmarks.files import Files
from benchmarks.networks import NETWORKS
from benchmarks.record import OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Network, input and threads of an engine."""

    network: str
    files: Files
    batch: int
    threads: int
    backend: Any = "auto"


def _ours(job: Job) -> Run:
    import engine

    session = engine.Session(engine.load(job.files.param), backend=job.backend, threads=job.threads)
    if job.batch != 1:  # without it the reference would answer until that batch has come several times
        session.prepare(batch=job.batch)
    return session.run


def _rival(rival: Rival, job: Job) -> Run:
    path = job.files.onnx(job.batch) if rival.kind == "onnx" else job.files.ncnn_param
    return rival.make(import_module(rival.module), path, job.threads)


def _torch(job: Job) -> Run:
    import torch

    torch.set_num_threads(job.threads)
    module = NETWORKS[job.network].make_module()
    module.load_state_dict(torch.load(job.files.weights))
    module.eval().requires_grad_(False)

    def run(inputs: Sequence[Array]) -> list[Array]:
        with torch.inference_mode():
            return [module(*map(torch.from_numpy, inputs)).numpy()]

    return run


@dataclass(frozen=True, slots=True)
class Engine:
    """Engine with its modules and distribution."""

    make: Callable[[Job], Run]
    distribution: str
    modules: tuple[str, ...]

    def load_library(self) -> None:
        """Import the engine's library, so that it is not counted as building."""
        for module in self.modules:
            import_module(module)


ENGINES: Final = {
    OURS: Engine(_ours, "pnnx-serve", ("engine",)),
    **{
        name: Engine(partial(_rival, each), each.distribution, (each.module,))
        for name, each in RIVALS.items()
        if not each.is_quantised
    },
    "torch": Engine(_torch, "torch", ("torch",)),
}
