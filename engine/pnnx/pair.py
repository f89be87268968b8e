"""The two files of a model, read and written together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import numpy as np

from engine.cancellation import cancellable, cancellable_quick
from engine.errors import ModelFormatError, WeightsError, quoted
from engine.memory.files import Path, file_name
from engine.memory.shared_blocks import shared
from engine.pnnx.archive import Member, check_crc, read_directory, write_archive
from engine.pnnx.files import ChangingError, identities, read_text_file, replace_files, sibling, take_file
from engine.pnnx.graph import Attribute, Graph, as_bytes, written_names
from engine.pnnx.param import ParamFile, parse_param
from engine.pnnx.printer import format_param
from engine.pnnx.shapes import Declaration
from engine.tensor import DTYPES, Array, format_shape


class Weights:
    """Members of a weights file, as attributes.

    Args:
        data: the whole file as a flat array; it lives as long as any of its attributes.
        verify: whether to read every member and check its CRC-32.

    Raises:
        WeightsError: for anything wrong with the archive itself.
    """

    def __init__(self, data: bytes | Array, *, verify: bool = False) -> None:
        self._data = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        content = self._data.data
        self._members = read_directory(content)
        if verify:
            for name, members in self._members.items():
                for member in cancellable(members):
                    check_crc(content, name, member)

    def check_repetitions(self, declared: Mapping[str, int]) -> None:
        """Refuse an archive that holds a member more often than the text file declares it.

        Args:
            declared: name of a member -> number of operators of that name that have it.

        Raises:
            WeightsError: naming the member.
        """
        for name, members in self._members.items():
            wanted = declared.get(name, 1)
            if len(members) not in (1, wanted):
                times = {1: "once", 2: "twice"}.get(wanted, f"{wanted} times")
                raise WeightsError("the member repeats", where=quoted(name), found=len(members), expected=times)

    def attribute(self, name: str, declared: Declaration, turn: int = 0) -> Attribute:
        """Return the member ``name`` as the tensor that the text file declares.

        Args:
            turn: number of earlier operators of the same name; a single member of the archive belongs to all of them.

        Raises:
            WeightsError: when it is missing, of another size, or has values that its dtype cannot hold.
        """
        members = self._members.get(name)
        if members is None:
            raise WeightsError("the member is missing", where=quoted(name), expected=f"{declared.size_bytes:,} bytes")
        member = members[turn if len(members) > 1 else 0]
        if member.size != declared.size_bytes:
            what = f"{declared.size_bytes:,} bytes for {declared.code} {format_shape(declared.shape)}"
            raise WeightsError("wrong size", where=quoted(name), found=f"{member.size:,} bytes", expected=what)
        return self._view(name, member, declared)

    def _view(self, name: str, member: Member, declared: Declaration) -> Attribute:
        content = self._data[member.offset : member.offset + member.size]
        if declared.code == "bool" and member.size and content.max() > 1:
            raise WeightsError("a bool is neither 0 nor 1", where=quoted(name), found=int(content.max()))
        values = _widen(content) if declared.code == "c32" else content.view(DTYPES[declared.code])
        return Attribute(declared.shape, DTYPES[declared.code], values.reshape(declared.shape), declared.code)


def pack_members(graph: Graph) -> Iterator[tuple[str, Array]]:
    """Yield names and bytes of all attributes, in the order of the archive: operators in order, keys sorted.

    Raises:
        WeightsError: for an attribute whose data contradicts its shape, dtype or code.
    """
    for operator, written in zip(graph.operators, written_names(graph.operators), strict=True):
        for key in sorted(operator.attributes):
            name = f"{written}.{key}"
            yield name, _pack(name, operator.attributes[key])


def _pack(name: str, attribute: Attribute) -> Array:
    data = attribute.data
    if (data.shape, data.dtype, attribute.dtype) != (attribute.shape, attribute.dtype, DTYPES[attribute.code]):
        found = f"{data.dtype} {format_shape(data.shape)}"
        expected = f"{attribute.code} {format_shape(attribute.shape)}"
        raise WeightsError("the attribute contradicts itself", where=quoted(name), found=found, expected=expected)
    return _narrow(name, data) if attribute.code == "c32" else as_bytes(data)


def _widen(content: Array) -> Array:
    with np.errstate(all="ignore"):
        values = content.view(np.float16).astype(np.float32).view(np.complex64)
    values.flags.writeable = False
    return values


def _narrow(name: str, data: Array) -> Array:
    with np.errstate(all="ignore"):
        content = as_bytes(np.ascontiguousarray(data).reshape(-1).view(np.float32).astype(np.float16))
    if not np.array_equal(_widen(content), data.reshape(-1), equal_nan=True):
        raise WeightsError("complex32 cannot hold a value", where=quoted(name))
    return content


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
