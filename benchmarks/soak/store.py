"""Store of a soak: the project's models, and small ones that are changed, loaded and unloaded, or cached."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# What the model that changes adds, in turn; what the others add.
STEPS = (1, 2)
CONSTANT = 3
# The digits model once more, whose requests share runs.
BATCHED = "batched"
BATCHING = """
[batching]
enabled = true
max_batch_size = 8
max_queue_delay_us = 3000
"""
TEXT = """7767517
3 2
pnnx.Input in0 0 1 0 #0=(?,3)f32
pnnx.Expression e 1 1 0 1 expr=add(@0,{value}) #0=(?,3)f32 #1=(?,3)f32
pnnx.Output out 1 0 1 #1=(?,3)f32
"""


def write_store(store: Path, models: Path) -> None:
    """Write all models that the requests need."""
    for name in ("digits", "superres"):
        shutil.copytree(models / name, store / name)
    shutil.copytree(models / "digits", store / BATCHED)
    config = store / BATCHED / "config.toml"
    config.write_text(config.read_text().replace("default = true", "") + BATCHING)
    _write(store, "changing", STEPS[0])
    _write(store, "visiting", CONSTANT)
    _write(store, "remembered", CONSTANT)
    (store / "remembered" / "config.toml").write_text("[response_cache]\nmax_bytes = 100000\n")


def change(store: Path, turn: int) -> None:
    """Replace the files of the model that changes."""
    new = store / "changing" / "new"
    new.write_text(TEXT.format(value=STEPS[turn % len(STEPS)]))
    os.replace(new, store / "changing" / "1" / "model.pnnx.param")


def _write(store: Path, name: str, value: int) -> None:
    version = store / name / "1"
    version.mkdir(parents=True)
    (version / "model.pnnx.param").write_text(TEXT.format(value=value))
    (version / "model.pnnx.bin").write_bytes(b"PK\5\6" + bytes(18))  # an archive without members
