"""Conversion of arrays, pictures and sounds named on the command line to the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from app.cli.arguments.options import UsageError
from app.codec.numpy_files import read_npy, read_npz
from app.errors import InvalidRequestError, ServiceError
from app.images.decode import Picture
from app.messages import quoted
from app.settings import Settings
from app.signature import Inputs, Signature, describe
from app.sound.sound import Sound, Sounds

_PICTURES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
_SOUNDS = frozenset((".aif", ".aiff", ".flac", ".mp3", ".ogg", ".wav"))
# Limits protect the server from untrusted requests; they do not apply to the user's own files.
_NO_LIMIT = 2**62


def without_limits(settings: Settings) -> Settings:
    """Return the settings without the limits that protect a server from its clients."""
    limits = ("max_elements", "max_body_bytes", "max_images")
    return settings.model_copy(update=dict.fromkeys(limits, _NO_LIMIT))


def read_inputs(
    arrays: Sequence[str],
    pictures: Sequence[str],
    signature: Signature,
    settings: Settings,
    sounds: Sequence[str] = (),
) -> Inputs:
    """Return the inputs of one run.

    Args:
        arrays: ``x.npy`` for the next input in the model's order; ``NAME=x.npy`` for that input; or ``x.npz``, whose
            arrays are named after inputs or follow their order.
        pictures: batch of pictures for the input that takes them.
        signature: inputs of the model.
        settings: settings of the server.
        sounds: batch of sounds for the input that takes them.

    Raises:
        UsageError: inputs are missing; the message names them.
        ServiceError: a file is damaged, or names an input that the model does not have.
        OSError: a file cannot be read.
    """
    inputs: Inputs = {}
    if pictures:
        inputs[signature.content_port("picture").name] = tuple(_picture(path) for path in pictures)
    if sounds:
        inputs[signature.content_port("sound").name] = Sounds(
            tuple(Sound(Path(path).read_bytes(), f"'{path}'") for path in sounds)
        )
    for argument in arrays:
        _assign(_read(argument, signature, settings), argument, inputs, signature)
    _check_complete(inputs, signature)
    return inputs


def read_labelled(path: str, signature: Signature, settings: Settings) -> tuple[Inputs, NDArray[Any] | None]:
    """Return the inputs in an .npz or .npy file, and its array ``labels`` unless that is an input.

    Raises:
        UsageError, ServiceError, OSError: as for ``read_inputs``.
    """
    if not path.endswith(".npz") or "labels" in _names(signature):
        return read_inputs([path], [], signature, settings), None
    arrays = read_archive(path, settings)
    labels = arrays.pop("labels", None)
    inputs: Inputs = {}
    _assign(_by_name(arrays, path, signature), path, inputs, signature)
    _check_complete(inputs, signature)
    return inputs, labels


def read_archive(path: str, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file.

    Raises:
        ServiceError: it is damaged.
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        return read_npz(content, settings)
    except ServiceError as exc:
        raise InvalidRequestError(exc.message.replace("the .npz body", f"'{path}'")) from None


def _assign(
    found: Sequence[tuple[str | None, NDArray[Any]]], argument: str, inputs: Inputs, signature: Signature
) -> None:
    for name, array in found:
        port = signature.input(name) if name is not None else _next_port(argument, inputs, signature)
        if port.name in inputs:
            raise UsageError(f"input '{port.name}' is given twice")
        inputs[port.name] = array


def find_pictures(paths: Sequence[str]) -> list[str]:
    """Return the paths with each folder replaced by its pictures, sorted by name.

    Raises:
        UsageError: a folder has no pictures.
    """
    return _found(paths, _PICTURES, "pictures")


def find_sounds(paths: Sequence[str]) -> list[str]:
    """Return the paths with each folder replaced by its sounds, sorted by name.

    Raises:
        UsageError: a folder has no sounds.
    """
    return _found(paths, _SOUNDS, "sounds")


def _found(paths: Sequence[str], endings: frozenset[str], what: str) -> list[str]:
    return [each for path in paths for each in (_inside(Path(path), endings, what) if Path(path).is_dir() else [path])]


def is_picture(path: Path) -> bool:
    """Return whether a file's name ends as that of a picture."""
    return path.suffix.lower() in _PICTURES


def needed(signature: Signature, inputs: Inputs) -> str:
    """Return the flags for the missing inputs: ``--input in0.npy ([1, 3, ?, ?] float32)``."""
    missing = [port for port in signature.requested if port.name not in inputs]
    flags = [f"--input {port.name}.npy ({describe(port)})" for port in missing]
    text = " and ".join(flags)
    for flag, name in (("--image", signature.takes("picture")), ("--sound", signature.takes("sound"))):
        if name in {port.name for port in missing}:
            return f"{text}, or {flag} FILE for '{name}'"
    return text


def _inside(folder: Path, endings: frozenset[str], what: str) -> list[str]:
    found = sorted(str(path) for path in folder.iterdir() if path.suffix.lower() in endings)
    if not found:
        raise UsageError(f"'{folder}' is a folder without {what}")
    return found


def _read(argument: str, signature: Signature, settings: Settings) -> list[tuple[str | None, NDArray[Any]]]:
    name, equals, path = argument.partition("=")
    if not equals or name not in _names(signature):
        name, path = "", argument
    if path.endswith(".npz"):
        return _by_name(read_archive(path, settings), path, signature)
    return [(name or None, read_npy(Path(path).read_bytes(), settings, where=f"'{path}'"))]


def _by_name(
    arrays: Mapping[str, NDArray[Any]], path: str, signature: Signature
) -> list[tuple[str | None, NDArray[Any]]]:
    """Return the arrays with the names of their inputs, or without names if none has that of an input.

    Raises:
        UsageError: only some have the name of an input.
    """
    unknown = arrays.keys() - _names(signature)
    if unknown and len(unknown) < len(arrays):
        raise UsageError(f"'{path}': found arrays {quoted(arrays)}, expected {quoted(signature.input_names)}")
    return [(None if unknown else key, array) for key, array in arrays.items()]


def _names(signature: Signature) -> set[str]:
    return {name for port in signature.inputs for name in (port.name, *port.aliases)}


def _next_port(argument: str, inputs: Inputs, signature: Signature) -> Any:
    free = [port for port in signature.requested if port.name not in inputs]
    if not free:
        raise UsageError(f"'{argument}' is an extra input: the model has {quoted(signature.input_names)}")
    return free[0]


def _picture(path: str) -> Picture:
    return Picture(data=Path(path).read_bytes(), label=f"'{path}'")


def _check_complete(inputs: Inputs, signature: Signature) -> None:
    if isinstance(inputs.get(signature.takes("sound") or ""), Sounds):
        return  # a sound becomes all inputs
    if len(inputs) < len(signature.requested):
        raise UsageError(f"the model needs {needed(signature, inputs)}")
