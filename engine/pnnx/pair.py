"""The two files of a model, read and written together."""

from __future__ import annotations

import os
from collections import Counter
from typing import BinaryIO

from engine.errors import ModelFormatError
from engine.files import Path, file_name
from engine.pnnx.files import map_file, read_text_file, replace_files, sibling
from engine.pnnx.graph import Graph
from engine.pnnx.packing import write_archive
from engine.pnnx.param import ParamFile, parse_param
from engine.pnnx.printer import format_param
from engine.pnnx.weights import Weights, pack_members


def read(param_path: Path, bin_path: Path | None = None, *, verify: bool = False) -> Graph:
    """Read a model. Weights are mapped: they are not read before they are used.

    Args:
        param_path: the text file.
        bin_path: the weights file, None for the one beside the text file (``x.pnnx.param`` has ``x.pnnx.bin``).
            A model without attributes needs none.
        verify: whether to read all weights and check their CRC-32.

    Raises:
        ParamSyntaxError: for a fault in the text file, placed at its line.
        WeightsError: for a fault in the weights file, placed at its member.
        ModelFormatError: when a file is missing or cannot be read.
    """
    param = parse_param(read_text_file(param_path), file_name(param_path))
    weights_path = sibling(param_path) if bin_path is None else bin_path
    if any(param.declarations) or os.path.lexists(weights_path):
        data = map_file(weights_path)
        try:
            _bind(param, Weights(data, verify=verify))
        except ModelFormatError as error:
            raise error.at(file_name(weights_path)) from None
    return param.graph


def write(graph: Graph, param_path: Path, bin_path: Path | None = None) -> None:
    """Write a model so that reading gives an equal graph. Both files are replaced, or neither.

    Args:
        graph: any graph. Its attributes may be mapped from the very files that are replaced.
        param_path: the text file.
        bin_path: the weights file, None for the one beside the text file.

    Raises:
        ParamSyntaxError: when the format cannot express the graph.
        WeightsError: when an attribute is not what its shape and dtype say.
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


def _bind(param: ParamFile, weights: Weights) -> None:
    pairs = zip(param.graph.operators, param.declarations, strict=True)
    places = [
        (operator, key, f"{operator.written or operator.name}.{key}", declared)
        for operator, declarations in pairs
        for key, declared in declarations.items()
    ]
    weights.check_repetitions(Counter(member for _, _, member, _ in places))
    turns: Counter[str] = Counter()
    for operator, key, member, declared in places:
        operator.attributes[key] = weights.attribute(member, declared, turns[member])
        turns[member] += 1
