"""The two files of a model, read and written together."""

from __future__ import annotations

import os
from collections import Counter
from typing import BinaryIO, Final

from engine.cancellation import cancellable_quick
from engine.errors import ModelFormatError
from engine.memory.files import Path, file_name
from engine.memory.shared_blocks import shared
from engine.pnnx.archive import write_archive
from engine.pnnx.files import ChangingError, identities, read_text_file, replace_files, sibling, take_file
from engine.pnnx.graph import Graph
from engine.pnnx.param import ParamFile, parse_param
from engine.pnnx.printer import format_param
from engine.pnnx.weights import Weights, pack_members
from engine.tensor import Array

# Attempts to read a pair that is written to at the same time.
_ATTEMPTS: Final = 3


def read(param_path: Path, bin_path: Path | None = None, *, verify: bool = False) -> Graph:
    """Read a model, both files as they are at one time; later changes of the files have no effect.

    Args:
        param_path: the text file.
        bin_path: the weights file, None for the text file's sibling (``x.pnnx.param`` has ``x.pnnx.bin``). A model
            without attributes needs none.
        verify: whether to read all weights and check their CRC-32.

    Raises:
        ParamSyntaxError: for a fault in the text file, placed at its line.
        WeightsError: for a fault in the weights file, placed at its member.
        ModelFormatError: when a file is missing or cannot be read.
    """
    weights_path = sibling(param_path) if bin_path is None else bin_path
    text, data = _take(param_path, weights_path)
    return understand(text, data, file_name(param_path), file_name(weights_path), verify=verify)


def understand(text: bytes, data: Array | None, param_name: str, weights_name: str, *, verify: bool = False) -> Graph:
    """Return the model of files that were read already.

    Args:
        text, data: the contents; None without a weights file.
        param_name, weights_name: names for messages.
        verify: whether to check the CRC-32 of all weights.

    Raises:
        ModelFormatError: as for ``read``.
    """
    param = parse_param(text, param_name)
    if data is None and any(param.declarations):
        raise ModelFormatError("the file does not exist", where=weights_name)
    if data is not None:
        try:
            _bind(param, Weights(data, verify=verify))
        except ModelFormatError as error:
            raise error.at(weights_name) from None
    return param.graph


def write(graph: Graph, param_path: Path, bin_path: Path | None = None) -> None:
    """Write a model so that reading gives an equal graph. Both files are replaced, or neither.

    Args:
        graph: any graph, even one read from the files that are replaced.
        param_path: the text file.
        bin_path: the weights file, None for the text file's sibling.

    Raises:
        ParamSyntaxError: when the format cannot express the graph.
        WeightsError: when an attribute contradicts its shape and dtype.
        EngineError: when the system refuses to write.
    """
    text = format_param(graph, file_name(param_path)).encode("utf-8")
    weights_path = sibling(param_path) if bin_path is None else bin_path

    def write_weights(out: BinaryIO) -> None:
        try:
            write_archive(out, pack_members(graph))
        except ModelFormatError as error:
            raise error.at(file_name(weights_path)) from None

    def write_text(out: BinaryIO) -> None:
        out.write(text)

    replace_files((weights_path, write_weights), (param_path, write_text))


def _take(param_path: Path, weights_path: Path) -> tuple[bytes, Array | None]:
    """Return both files as they were at one time; no weights if there is no such file.

    Raises:
        ModelFormatError: they keep changing, or cannot be read.
    """
    for _ in range(_ATTEMPTS):
        before = identities(param_path, weights_path)
        try:
            text = read_text_file(param_path)
            data = take_file(weights_path) if os.path.lexists(weights_path) else None
        except ChangingError:
            continue
        if identities(param_path, weights_path) == before:
            return text, None if data is None else shared(data)
    raise ChangingError(where=f"{file_name(param_path)} and {file_name(weights_path)}")


def _bind(param: ParamFile, weights: Weights) -> None:
    pairs = zip(param.graph.operators, param.declarations, strict=True)
    places = [
        (operator, key, f"{operator.written or operator.name}.{key}", declared)
        for operator, declarations in pairs
        for key, declared in declarations.items()
    ]
    weights.check_repetitions(Counter(member for _, _, member, _ in places))
    turns: Counter[str] = Counter()
    for operator, key, member, declared in cancellable_quick(places):
        operator.attributes[key] = weights.attribute(member, declared, turns[member])
        turns[member] += 1
