"""Attributes: conversion between the bytes of archive members and arrays.

Values are little-endian in the file, and so are the supported hosts. An array is a view of the archive; only
complex32, which numpy does not have, is copied. bool is checked: numpy misbehaves on bytes other than 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from engine.cancellation import cancellable
from engine.errors import WeightsError, quoted
from engine.pnnx.archive import Member, check_crc, read_directory
from engine.pnnx.graph import Attribute, Graph, as_bytes, written_names
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
