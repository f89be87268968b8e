""".npy and .npz bodies -> inputs. Names are matched here; dtype and shape are the engine's to check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from app.codec.arrays.numpy_files import read_npy, read_npz
from app.codec.message import Message
from app.settings import Settings
from app.signature import Inputs, Signature


def npy_message(body: bytes | bytearray, settings: Settings) -> Message:
    """A ``.npy`` body: one array, for the only input."""
    return Message(decode=lambda signature: {signature.only_input().name: read_npy(body, settings)})


def npz_message(body: bytes | bytearray, settings: Settings) -> Message:
    """Arrays by input name; the only array for the only input may have any name."""
    return Message(decode=lambda signature: named(read_npz(body, settings), signature))


def named(arrays: Mapping[str, NDArray[Any]], signature: Signature) -> Inputs:
    """Arrays of an archive as inputs."""
    if len(arrays) == len(signature.inputs) == 1:
        return {signature.inputs[0].name: next(iter(arrays.values()))}
    return {signature.input(name).name: array for name, array in arrays.items()}
