"""Arrays and pictures named on a command line -> the inputs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from app.cli.arguments.options import UsageError
from app.codec.arrays.numpy_files import read_npy, read_npz
from app.errors import InvalidRequestError, ServiceError
from app.images.decode import Picture
from app.settings import Settings
from app.signature import Inputs, Signature, describe
from app.wording import quoted

_PICTURES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
# A user's own files are not a stranger's request.
_NO_LIMIT = 2**62


def without_limits(settings: Settings) -> Settings:
    """The settings without the limits that protect a server from its clients."""
    limits = ("max_elements", "max_body_bytes", "max_images")
    return settings.model_copy(update=dict.fromkeys(limits, _NO_LIMIT))


def read_inputs(arrays: Sequence[str], pictures: Sequence[str], signature: Signature, settings: Settings) -> Inputs:
    """The inputs of one run.

    Args:
        arrays: ``x.npy``, for the next input in the model's order; ``NAME=x.npy``, for that input; or ``x.npz``, whose
            arrays are named after inputs or else stand in their order.
        pictures: a batch of pictures for the input that takes them.

    Raises:
        UsageError: inputs are missing; says which, and what they are.
        ServiceError: a file is damaged, or given for an input the model has not.
        OSError: a file cannot be read.
    """
    inputs: Inputs = {}
    if pictures:
        inputs[signature.picture_port().name] = tuple(_picture(path) for path in pictures)
    for argument in arrays:
        for name, array in _read(argument, signature, settings):
            port = signature.input(name) if name is not None else _next_port(argument, inputs, signature)
            if port.name in inputs:
                raise UsageError(f"input '{port.name}' is given twice")
            inputs[port.name] = array
    _check_complete(inputs, signature)
    return inputs


def find_pictures(paths: Sequence[str]) -> list[str]:
    """Pictures, with those of a folder in its place by their names.

    Raises:
        UsageError: a folder has none.
    """
    return [found for path in paths for found in (_inside(Path(path)) if Path(path).is_dir() else [path])]


def needed(signature: Signature, inputs: Inputs) -> str:
    """What is still to be given, as flags: ``--input in0.npy ([1, 3, ?, ?] float32)``."""
    missing = [port for port in signature.inputs if port.name not in inputs]
    flags = [f"--input {port.name}.npy ({describe(port)})" for port in missing]
    text = " and ".join(flags)
    takes_picture = signature.picture_input in {port.name for port in missing}
    return f"{text}, or --image FILE for '{signature.picture_input}'" if takes_picture else text


def _inside(folder: Path) -> list[str]:
    found = sorted(str(path) for path in folder.iterdir() if path.suffix.lower() in _PICTURES)
    if not found:
        raise UsageError(f"'{folder}' is a folder without pictures")
    return found


def _read(argument: str, signature: Signature, settings: Settings) -> list[tuple[str | None, NDArray[Any]]]:
    name, equals, path = argument.partition("=")
    if not equals or name not in _names(signature):
        name, path = "", argument
    content = Path(path).read_bytes()
    try:
        if not path.endswith(".npz"):
            return [(name or None, read_npy(content, settings, where=f"'{path}'"))]
        arrays = read_npz(content, settings)
    except ServiceError as exc:
        raise InvalidRequestError(exc.message.replace("the .npz body", f"'{path}'")) from None
    by_name = arrays.keys() <= _names(signature)
    return [(key if by_name else None, array) for key, array in arrays.items()]


def _names(signature: Signature) -> set[str]:
    return {name for port in signature.inputs for name in (port.name, *port.aliases)}


def _next_port(argument: str, inputs: Inputs, signature: Signature) -> Any:
    free = [port for port in signature.inputs if port.name not in inputs]
    if not free:
        raise UsageError(f"'{argument}' is one input too many: the model has {quoted(signature.input_names)}")
    return free[0]


def _picture(path: str) -> Picture:
    return Picture(data=Path(path).read_bytes(), label=f"'{path}'")


def _check_complete(inputs: Inputs, signature: Signature) -> None:
    if len(inputs) < len(signature.inputs):
        raise UsageError(f"the model needs {needed(signature, inputs)}")
