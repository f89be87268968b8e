"""The table of tasks: a model's ``task`` key -> the class that serves it."""

from __future__ import annotations

from typing import Any, Final

from app.errors import ConfigError
from app.tasks.classification import ClassificationTask
from app.tasks.detection.task import DetectionTask
from app.tasks.image import ImageTask
from app.tasks.segmentation.task import SegmentationTask
from app.tasks.task import Task
from app.tasks.tensor import TensorTask
from app.wording import cut, did_you_mean, quoted

TASKS: Final[dict[str, type[Task[Any]]]] = {
    task.NAME: task for task in (TensorTask, ClassificationTask, DetectionTask, SegmentationTask, ImageTask)
}


def find_task(name: str) -> type[Task[Any]]:
    """The task of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in TASKS:
        raise ConfigError(f"task: found '{cut(name)}'{did_you_mean(name, TASKS)}, expected {quoted(TASKS)}")
    return TASKS[name]


def parameter_names() -> tuple[str, ...]:
    """Every parameter some task takes."""
    return tuple(dict.fromkeys(name for task in TASKS.values() for name in task.PARAMETERS))
