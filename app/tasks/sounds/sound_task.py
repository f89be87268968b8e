"""Base class of tasks for sounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from app.errors import ConfigError
from app.sound.sound import Clip, Sounds
from app.tasks.task import ConfigT, Finding, Outputs, Task, TaskRun


class Window(NamedTuple):
    """Outputs for one window of a sound.

    Attributes:
        clip: its place in the sound.
        outputs: outputs of the network by name, without the batch dimension.
    """

    clip: Clip
    outputs: Outputs


class SoundTask(Task[ConfigT]):
    """Task whose predictions are about sounds; a long sound may be several rows of several runs."""

    TAKES = Sounds

    def predict(self, outputs: Outputs, clips: Sequence[Clip], options: ConfigT) -> Sequence[Finding]:
        """Return the prediction for each window as a sound of its own."""
        return self.predict_all([TaskRun(outputs, clips, range(len(clips)))], options)

    def predict_all(self, runs: Sequence[TaskRun], options: ConfigT) -> Sequence[Finding]:
        """Return the prediction for each sound of a request.

        Raises:
            ConfigError: an output does not have the configured shape.
        """
        sounds: dict[int, list[Window]] = {}
        for run in runs:
            for row, (index, clip) in enumerate(zip(run.indices, run.contents, strict=True)):
                outputs = {name: array[row] for name, array in run.outputs.items() if row < len(array)}
                sounds.setdefault(index, []).append(Window(clip, outputs))
        return [self.predict_sound(sounds[index], options) for index in range(len(sounds))]

    @abstractmethod
    def predict_sound(self, windows: Sequence[Window], options: ConfigT) -> Finding:
        """Return the prediction for one sound.

        Args:
            windows: its windows in order.
            options: config of the task.

        Raises:
            ConfigError: an output does not have the configured shape.
        """

    def _row(self, window: Window, name: str, rank: int, expected: str) -> NDArray[Any]:
        """Return an output for a window; dimensions of 1 that are too many are removed.

        Raises:
            ConfigError: it has another number of dimensions.
        """
        found = window.outputs.get(name)
        if found is None:
            raise ConfigError(f"output '{name}': found no row for each window, expected {expected}")
        for axis in reversed(range(found.ndim)):
            if found.ndim > rank and found.shape[axis] == 1:
                found = found.squeeze(axis)
        if found.ndim != rank:
            raise ConfigError(f"output '{name}': found shape {['N', *found.shape]}, expected {expected}")
        return found
