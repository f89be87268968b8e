"""Postprocessing of outputs: predictions, drawings, and the requested raw outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from app.errors import InputMismatchError, NotAcceptableError
from app.hooks.hooks import Hooks
from app.images.placement import Placement
from app.images.preprocess import Preprocessor
from app.models.folder.config import ModelConfig
from app.models.request import InferResult, Prepared, Ran, batch_of
from app.signature import Inputs
from app.tasks.registry import find_task
from app.tasks.task import DrawingTask, Finding, Outputs, TaskContext, TaskRun


class Postprocessing:
    """Task of one model.

    Args:
        name: name of the model, for messages.
        config: config of the model.
        context: properties of the model that its task needs.
        preprocessor: None if the model takes no pictures.
        hooks: None without hooks.py.

    Raises:
        ConfigError: the task's table does not fit the model.
    """

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        context: TaskContext,
        preprocessor: Preprocessor | None,
        hooks: Hooks | None,
    ) -> None:
        self._name = name
        self._config = config
        self._signature = context.signature
        self._preprocessor = preprocessor
        self._hooks = hooks if hooks is not None and hooks.makes_answers else None
        task = find_task(config.task)
        self._task = task(config.table(task), context)

    @property
    def can_draw(self) -> bool:
        """Return whether predictions can be drawn."""
        return self._hooks is None and isinstance(self._task, DrawingTask)

    @property
    def finding(self) -> Any:
        """Return the type of the prediction for one item, None without predictions."""
        return self._task.finding if self._hooks is None else Any

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return the task's parameters of a request."""
        return self._task.PARAMETERS

    def options(self, parameters: Mapping[str, Any]) -> Any:
        """Return the task's options with the parameters of a request.

        Raises:
            InvalidRequestError: the task does not have a parameter.
        """
        return self._task.options(parameters)

    def check_drawable(self, inputs: Inputs) -> None:
        """Raise if the request asks for an impossible drawing, before anything runs.

        Raises:
            NotAcceptableError: the task does not draw.
            InputMismatchError: there is more than one item.
        """
        if not self.can_draw:
            raise NotAcceptableError(f"model '{self._name}': its task '{self._config.task}' cannot draw a picture")
        pictures = inputs.get(self._signature.takes("picture") or "")
        items = len(pictures) if isinstance(pictures, tuple) else batch_of(inputs.values())
        if items != 1:
            raise InputMismatchError(f"a picture as the answer: found {items}, expected 1", found=items, expected=1)

    def finish(self, prepared: Prepared, ran: Ran) -> InferResult:
        """Predict and draw.

        Raises:
            ConfigError: the outputs are not as configured.
        """
        start = time.perf_counter()
        request, outputs = prepared.request, ran.outputs
        predictions = self._predictions(prepared, ran) if request.predict and self.finding is not None else None
        wanted = prepared.wanted
        if wanted is None:
            is_raw = self._hooks is None and (not prepared.contents or self._task.FINDING is None)
            wanted = tuple(outputs) if is_raw else ()
        drawing = self._draw(prepared.inputs, predictions) if request.draw and predictions else None
        timing = prepared.timing
        timing.infer_s = ran.infer_s + sum(each.infer_s for each in ran.rest)
        timing.postprocess_s = time.perf_counter() - start
        return InferResult(
            outputs={name: outputs[name if name in outputs else self._name_of(name)] for name in wanted},
            predictions=predictions,
            items=prepared.items + sum(each.items for each in prepared.rest),
            timing=timing,
            drawing=drawing,
            batch=ran.batch,
            is_first=ran.is_first,
        )

    def _name_of(self, output: str) -> str:
        port = self._signature.output(output)
        return output if port is None else port.name

    def _predictions(self, prepared: Prepared, ran: Ran) -> Sequence[Finding] | None:
        """Return the predictions of all runs of a request, in the order of its items; of hooks, the one answer."""
        if self._hooks is not None:
            if prepared.rest:
                raise InputMismatchError("hooks.py: found inputs of several lengths, expected those of one run")
            return [self._hooks.answer(ran.outputs)]
        if self._task.TAKES is not None and not prepared.contents:
            return None  # of tensors that a request sends directly, the texts or sounds are not known
        pairs = zip((prepared, *prepared.rest), (ran, *ran.rest), strict=True)
        return self._task.predict_all([self._task_run(*pair) for pair in pairs], prepared.options)

    def _task_run(self, prepared: Prepared, ran: Ran) -> TaskRun:
        contents = prepared.contents or self._direct_placements(prepared.tensors, ran.outputs)
        return TaskRun(ran.outputs, contents, prepared.indices)

    def _direct_placements(self, tensors: Mapping[str, NDArray[Any]], outputs: Outputs) -> Sequence[Placement]:
        """Return placements for tensors sent directly: the picture spans the first 4-dimensional tensor."""
        name, items = self._signature.takes("picture") or "", batch_of(outputs.values())
        maps = [tensors[name]] if name in tensors else [x for x in tensors.values() if x.ndim == 4]
        if not maps or maps[0].ndim != 4 or 0 in maps[0].shape[1:]:
            return [Placement.identity((1, 1))] * items
        is_nhwc = self._preprocessor is not None and self._preprocessor.config.layout == "nhwc"
        height, width = maps[0].shape[1:3] if is_nhwc else maps[0].shape[2:]
        return [Placement.identity((width, height))] * items

    def _draw(self, inputs: Inputs, predictions: Sequence[Finding]) -> bytes | None:
        def picture() -> Image.Image:
            sent = inputs.get(self._signature.takes("picture") or "")
            if not isinstance(sent, tuple) or self._preprocessor is None:
                raise InputMismatchError(
                    "a picture as the answer: found a tensor, expected an input picture to draw on"
                )
            return self._preprocessor.open(sent[0])

        return self._task.draw(predictions[0], picture) if isinstance(self._task, DrawingTask) else None
