"""--shape on a command line -> what a run is compiled or measured for."""

from __future__ import annotations

from collections.abc import Sequence

import engine
from app.cli.arguments.options import UsageError
from app.models.examples import fits
from app.models.model import Model
from app.signature import describe
from app.wording import quoted


def example_specs(model: Model, shapes: Sequence[tuple[int, ...]]) -> list[engine.TensorSpec] | None:
    """The inputs of a run, in the model's order; without shapes those that the graph and the config tell.

    None where these leave a size open.

    Raises:
        UsageError: the shapes are not as many as the inputs, or do not fit them.
    """
    if not shapes:
        zeros = model.example_inputs()
        return None if zeros is None else [engine.TensorSpec(each.shape, each.dtype) for each in zeros.values()]
    ports = model.signature.inputs
    if len(shapes) != len(ports):
        names = quoted(port.name for port in ports)
        raise UsageError(f"--shape: found {len(shapes)}, expected one for each input: {names}")
    return [_spec(port, shape) for port, shape in zip(ports, shapes, strict=True)]


def _spec(port: engine.Port, shape: tuple[int, ...]) -> engine.TensorSpec:
    if port.spec is None:
        raise UsageError(f"--shape: the model does not tell the dtype of '{port.name}'")
    if not fits(port, shape):
        raise UsageError(f"--shape: found {list(shape)}, which does not fit '{port.name}' ({describe(port)})")
    return engine.TensorSpec(shape, port.spec.dtype)
