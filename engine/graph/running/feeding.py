"""A caller's tensors, checked against the graph's inputs before the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.errors import InputError, ParameterError
from engine.graph.port import Port, may_be_state
from engine.ir.dims import Dim
from engine.tensor import CODES, KNOWN, Array, TensorSpec, dtype_name, format_shape, parse_dtype

_KINDS: Final = "biufcV"  # bfloat16 has kind V


class PlainInputs:
    """Test for inputs that a graph takes as they are: arrays of its dtypes and sizes, in order or by its names.

    The first run of every new size waits for this test.

    Args:
        ports: the graph's inputs.
    """

    def __init__(self, ports: Sequence[Port]) -> None:
        self._names = [port.name for port in ports]
        specs = [port.spec for port in ports if port.spec is not None and port.spec.dtype != np.object_]
        self._specs = [(spec.dtype, spec.shape) for spec in specs] if len(specs) == len(ports) else None
        places: dict[str, list[tuple[int, int]]] = {}
        for index, port in enumerate(ports):
            for axis, name in enumerate(port.size_names):
                if name is not None:
                    places.setdefault(name, []).append((index, axis))
        self._equal = [(first, other) for first, *others in places.values() for other in others]

    def places(self, given: object) -> list[Any]:
        """Return the position of each input of the graph among the caller's."""
        return self._names if type(given) is dict else [*range(len(self._names))]

    def of(self, given: object) -> list[Array] | None:
        """Return the inputs in the graph's order; None if ``feed`` has to convert or refuse them."""
        if type(given) is list or type(given) is tuple:
            arrays = [*given]
        elif type(given) is dict and len(given) == len(self._names):
            arrays = [given.get(name) for name in self._names]
        else:
            arrays = [given]
        if self._specs is None or len(arrays) != len(self._specs):
            return None
        for array, (dtype, shape) in zip(arrays, self._specs, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != len(shape):
                return None
            if array.shape != shape:
                for size, dim in zip(array.shape, shape, strict=True):
                    if size != dim and dim is not None:
                        return None
        for (first, axis), (other, place) in self._equal:
            if arrays[first].shape[axis] != arrays[other].shape[place]:
                return None
        return arrays


def feed(ports: Sequence[Port], given: object) -> list[Array]:
    """Return the inputs as arrays in the graph's order.

    Args:
        ports: the graph's inputs.
        given: a sequence in order, a mapping by name, or one array for a graph with one input. Arrays keep
            their dtype and must have the graph's; lists of numbers take the graph's dtype.

    Raises:
        InputError: a name, count, dtype or rank does not fit, or a fixed dimension that cannot be the batch: any but
            the first, and in an input that may be a recurrent layer's state any but the first two.
    """
    values = _in_order(ports, given)
    arrays = [_as_array(port, value) for port, value in zip(ports, values, strict=True)]
    for index, array in enumerate(arrays):
        _check(ports, index, array)
    if any(port.size_names for port in ports):
        _check_named(ports, arrays)
    return arrays


def feed_specs(ports: Sequence[Port], given: object) -> list[TensorSpec]:
    """Return descriptions of the inputs in the graph's order, with numpy dtypes; ``given`` is like that of ``feed``.

    Raises:
        InputError: a count or name does not fit, or an item is not a TensorSpec with a dtype and sizes.
    """
    return [_as_spec(port, value) for port, value in zip(ports, _in_order(ports, given), strict=True)]


def check_specs(ports: Sequence[Port], specs: Sequence[TensorSpec]) -> None:
    """Refuse specs for which ``feed`` would refuse arrays.

    Raises:
        InputError: a dtype, rank or fixed dimension does not fit.
    """
    for index, spec in enumerate(specs):
        _check(ports, index, spec)


def _as_spec(port: Port, value: object) -> TensorSpec:
    if not isinstance(value, TensorSpec):
        raise InputError("not a TensorSpec", where=_place(port), found=type(value).__name__)
    is_shape = isinstance(value.shape, (tuple, list)) and all(_is_dim(each) for each in value.shape)
    if not is_shape:
        raise InputError(
            "not a shape", where=_place(port), found=repr(value.shape)[:80], expected="sizes, None for a dynamic one"
        )
    try:
        return replace(value, shape=tuple(value.shape), dtype=parse_dtype(value.dtype))
    except ParameterError as error:
        raise InputError(error.problem, where=_place(port), found=error.found, expected="a numpy dtype") from None


def _is_dim(value: object) -> bool:
    """Return whether a value is a dimension: a size, None, or a symbolic size."""
    return value is None or isinstance(value, Dim) or (isinstance(value, (int, np.integer)) and int(value) >= 0)


def _check_named(ports: Sequence[Port], arrays: Sequence[Array]) -> None:
    """Refuse inputs in which dimensions of one name have different sizes.

    Raises:
        InputError: two are not.
    """
    first: dict[str, tuple[int, Port, int]] = {}
    for port, array in zip(ports, arrays, strict=True):
        for axis, name in enumerate(port.size_names):
            if name is None:
                continue
            size, other, place = first.setdefault(name, (array.shape[axis], port, axis))
            if size != array.shape[axis]:
                raise InputError(
                    f"dimension {axis} ('{name}') has another size",
                    where=_place(port),
                    found=format_shape(array.shape),
                    expected=f"{size}, as dimension {place} ('{name}') of {_place(other)}",
                )


def _in_order(ports: Sequence[Port], given: object) -> Sequence[object]:
    if isinstance(given, Mapping):
        return _by_name(ports, given)
    if isinstance(given, np.ndarray):
        given = [given]
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise InputError("inputs are neither a sequence nor a mapping", found=type(given).__name__)
    if len(given) != len(ports):
        expected = f"{len(ports)} ({', '.join(port.name for port in ports) or 'none'})"
        raise InputError("wrong number of inputs", found=len(given), expected=expected)
    return given


def _by_name(ports: Sequence[Port], given: Mapping[Any, object]) -> list[object]:
    rest = dict(given)
    values = []
    for port in ports:
        names = [name for name in (port.name, *port.aliases) if name in rest]
        if not names:
            raise InputError(f"input '{port.name}' is missing", found=_names(given), expected=_names(ports))
        values.append(rest.pop(names[0]))
    if rest:
        raise InputError(f"unknown input '{next(iter(rest))}'", expected=_names(ports))
    return values


def _names(items: Sequence[Port] | Mapping[Any, object]) -> str:
    names = [item.name if isinstance(item, Port) else str(item) for item in items]
    return ", ".join(names) or "none"


def _as_array(port: Port, value: object) -> Array:
    if type(value) is np.ndarray and port.spec is not None and value.dtype == port.spec.dtype != np.object_:
        return value
    if port.spec is None and isinstance(value, list) and all(isinstance(each, np.ndarray) for each in value):
        return value  # type: ignore[return-value]  # a list of tensors, which only its users can judge
    if port.spec is not None and port.spec.dtype == np.object_:
        return _texts(port, value)
    if port.spec is None and value is None:
        return value  # type: ignore[return-value]  # an optional value that is absent
    if port.spec is None and isinstance(value, np.ndarray) and value.dtype == np.object_:
        return _texts(port, value)
    try:
        array = np.asarray(value)
    except Exception as exc:  # ragged lists, or a foreign object whose __array__ fails
        raise InputError("not an array", where=_place(port), found=f"{type(value).__name__}: {exc}") from None
    if array.dtype.kind not in _KINDS or array.dtype.names is not None:
        raise InputError("not an array of numbers", where=_place(port), found=_kind(value, array))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    is_known = array.dtype in KNOWN if port.spec is None else array.dtype in CODES or array.dtype == port.spec.dtype
    if not is_known and hasattr(value, "dtype"):
        expected = "a dtype that graphs have" if port.spec is None else dtype_name(port.spec.dtype)
        raise InputError("wrong dtype", where=_place(port), found=dtype_name(array.dtype), expected=expected)
    if port.spec is None or hasattr(value, "dtype"):
        return array
    return _typed(array, port, port.spec)


def _texts(port: Port, value: object) -> Array:
    """Return texts as an array; bytes are decoded as UTF-8."""
    try:
        array = np.asarray(value, np.object_)
    except Exception as exc:
        raise InputError("not an array", where=_place(port), found=f"{type(value).__name__}: {exc}") from None
    if not all(isinstance(each, (str, bytes)) for each in array.reshape(-1)):
        raise InputError("not an array of texts", where=_place(port), found=_kind(value, array))
    texts = np.empty(array.shape, np.object_)
    for place, each in np.ndenumerate(array):
        texts[place] = each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each)
    return texts


def _kind(value: object, array: Array) -> str:
    return f"an array of {array.dtype}"[:80] if hasattr(value, "dtype") else type(value).__name__


def _typed(array: Array, port: Port, spec: TensorSpec) -> Array:
    """Return Python numbers in the graph's dtype, unless that would change their values."""
    if array.size and _KINDS.index(array.dtype.kind) > _KINDS.index(spec.dtype.kind):
        found, expected = dtype_name(array.dtype), dtype_name(spec.dtype)
        raise InputError("numbers of the wrong kind", where=_place(port), found=found, expected=expected)
    with np.errstate(over="ignore"):
        return array.astype(spec.dtype)


def _check(ports: Sequence[Port], index: int, array: Array | TensorSpec) -> None:
    port = ports[index]
    spec = port.spec
    if spec is None:
        return
    if array.dtype != spec.dtype:
        raise InputError(
            "wrong dtype", where=_place(port), found=dtype_name(array.dtype), expected=dtype_name(spec.dtype)
        )
    rank = len(array.shape)
    if rank != spec.rank:
        found = f"{format_shape(array.shape)} with {rank} dimensions"
        raise InputError(
            "wrong rank", where=_place(port), found=found, expected=f"{spec.rank} ({_expected_shape(port)})"
        )
    pairs = zip(array.shape[1:], spec.shape[1:], strict=True)
    wrong = [axis for axis, (size, want) in enumerate(pairs, 1) if None not in (want, size) and want != size]
    if wrong and (wrong != [1] or not may_be_state(ports, index)):
        raise InputError(
            "wrong shape", where=_place(port), found=format_shape(array.shape), expected=_expected_shape(port)
        )


def _expected_shape(port: Port) -> str:
    """Return the expected shape as text; the first dimension may be any batch."""
    shape = port.spec.shape if port.spec is not None else ()
    return format_shape((None, *shape[1:]), port.size_names) if shape else "[]"


def _place(port: Port) -> str:
    return f"input '{port.name}'"
