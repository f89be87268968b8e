"""The table of tasks: a model's ``task`` key -> the class that serves it."""

from __future__ import annotations

from typing import Final

from app.errors import ConfigError
from app.tasks.classification import ClassificationTask
from app.tasks.detection import DetectionTask
from app.tasks.image import ImageTask
from app.tasks.segmentation import SegmentationTask
from app.tasks.task import Task, TaskContext
from app.tasks.tensor import TensorTask
from app.wording import cut, did_you_mean, quoted

TASKS: Final[dict[str, type[Task]]] = {
    "tensor": TensorTask,
    "classification": ClassificationTask,
    "detection": DetectionTask,
    "segmentation": SegmentationTask,
    "image": ImageTask,
}


def make_task(context: TaskContext) -> Task:
    """The task of a model.

    Raises:
        ConfigError: for a task that is not in the table, or a config that does not fit the model's outputs.
    """
    name = context.config.task
    if name not in TASKS:
        raise ConfigError(f"task: found '{cut(name)}'{did_you_mean(name, TASKS)}, expected {quoted(TASKS)}")
    return TASKS[name](context)


def parameter_names() -> tuple[str, ...]:
    """Every parameter some task takes."""
    return tuple(dict.fromkeys(name for task in TASKS.values() for name in task.PARAMETERS))
