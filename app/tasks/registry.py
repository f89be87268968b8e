"""Table of tasks: ``task`` in config.toml to the class that implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from app.errors import ConfigError
from app.images.placement import Placement
from app.messages import cut, did_you_mean, quoted
from app.schema import Section
from app.tasks.classification import ClassificationTask
from app.tasks.images.detection import DetectionTask
from app.tasks.images.image import ImageTask
from app.tasks.images.segmentation import SegmentationTask
from app.tasks.images.text_recognition import TextRecognitionTask
from app.tasks.sounds.audio_classification import AudioClassificationTask
from app.tasks.sounds.speaker_embedding import SpeakerEmbeddingTask
from app.tasks.sounds.speech_to_text import SpeechToTextTask
from app.tasks.sounds.vad import VadTask
from app.tasks.task import Outputs, Task
from app.tasks.texts.embedding import EmbeddingTask
from app.tasks.texts.fill_mask import FillMaskTask
from app.tasks.texts.question_answering import QuestionAnsweringTask
from app.tasks.texts.text_classification import RerankTask, TextClassificationTask
from app.tasks.texts.token_classification import TokenClassificationTask
from app.text.text import Texts


class TensorTask(Task[Section]):
    """Task without predictions; the answer holds the outputs."""

    NAME = "tensor"
    CONFIG = Section
    EXAMPLE = {"outputs": {"out0": {"shape": [1, 3], "dtype": "float32", "data": [0.5, 1.0, "NaN"]}}}

    def predict(self, outputs: Outputs, placements: Sequence[Placement], options: Section) -> None:
        """Return None."""
        return None


TASKS: Final[dict[str, type[Task[Any]]]] = {
    task.NAME: task
    for task in (
        TensorTask,
        ClassificationTask,
        DetectionTask,
        SegmentationTask,
        ImageTask,
        TextRecognitionTask,
        EmbeddingTask,
        RerankTask,
        TextClassificationTask,
        TokenClassificationTask,
        QuestionAnsweringTask,
        FillMaskTask,
        AudioClassificationTask,
        SpeechToTextTask,
        VadTask,
        SpeakerEmbeddingTask,
    )
}


TEXT_TASKS: Final = tuple(name for name, task in TASKS.items() if task.TAKES is Texts)


def find_task(name: str) -> type[Task[Any]]:
    """Return the task of a name.

    Raises:
        ConfigError: there is no such task.
    """
    if name not in TASKS:
        raise ConfigError(f"task: found '{cut(name)}'{did_you_mean(name, TASKS)}, expected {quoted(TASKS)}")
    return TASKS[name]


def parameter_names() -> tuple[str, ...]:
    """Return the names of all request parameters of all tasks."""
    return tuple(dict.fromkeys(name for task in TASKS.values() for name in task.PARAMETERS))
