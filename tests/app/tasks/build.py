"""Tasks of models that have nothing but outputs."""

from __future__ import annotations

from typing import Any, TypeVar

import engine
from app.signature import Signature
from app.tasks.task import Task, TaskContext

TaskT = TypeVar("TaskT", bound=Task[Any])


def task_of(task: type[TaskT], labels: tuple[str, ...] | None = None, *, outputs: int = 1, **config: Any) -> TaskT:
    """A task with these keys in its table, of a model with outputs out0, out1 and so on."""
    ports = tuple(engine.Port(name=f"out{i}", operand=str(i), spec=None) for i in range(outputs))
    return task(
        task.CONFIG.model_validate(config),
        TaskContext(signature=Signature(inputs=(), outputs=ports), labels=labels),
    )
