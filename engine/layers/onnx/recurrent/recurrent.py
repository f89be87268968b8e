"""LSTM, GRU and plain recurrent networks of ONNX: any activations, sequences of different lengths, clipping.

pnnx's converter does not name operands and omits optional ones without a trace: operands and outputs of such files are
identified by their ranks and widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.indexing.reverse_sequence import checked_lengths, turned
from engine.layers.onnx.operands.adapter import present, selected
from engine.layers.onnx.products.quantise import bytes_between
from engine.layers.onnx.recurrent.recurrent_activations import Activation, activation
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import FLOATING, tensor
from engine.promotion import cast
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape, product, spec_of

_NAMES: Final = ("x", "w", "r", "b", "lengths", "h", "c", "p")
_DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Operands by name, arrays or specs."""

    x: Any
    w: Any
    r: Any
    b: Any = None
    lengths: Any = None
    h: Any = None
    c: Any = None
    p: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Weights and activations of one direction."""

    recurrent: Array
    hidden_bias: Array
    peepholes: Array | None
    activations: Sequence[Activation]


class OnnxRecurrent(Layer):
    """Base of recurrent networks.

    Shapes:
        input (T, B, I), W (D, G*H, I), R (D, G*H, H), bias (D, 2*G*H), lengths (B,), initial states (D, B, H)
        ->  Y (T, D, B, H), last states (D, B, H); with layout 1 (B, T, I) and (B, D, H) -> (B, T, D, H), (B, D, H)
    Parameters:
        activations, activation_alpha, activation_beta: values of each gate, direction by direction.
        clip: bound of the activations' inputs.
    """

    gates: ClassVar[int]
    defaults: ClassVar[tuple[str, ...]]
    has_cell: ClassVar[bool] = False

    hidden_size: int | None = None
    direction: str = "forward"
    layout: int = 0
    clip: float | None = None
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self.direction not in _DIRECTIONS:
            raise ParameterError("unknown direction", found=self.direction, expected=", ".join(_DIRECTIONS))
        if self.layout not in (0, 1):
            raise ParameterError("unknown layout", found=self.layout, expected="0 or 1")
        _ = self._activations

    def infer(self, *operands: Any) -> Any:
        specs = self._specs(self.named(operands))
        return selected(specs, present(specs, self.annotations))

    def forward(
        self,
        input: Array,
        weight: Array,
        recurrent_weight: Array,
        bias: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        peepholes: Array | None = None,
    ) -> Any:
        operands = (input, weight, recurrent_weight, bias, sequence_lens, initial_h, initial_c, peepholes)
        given = self.named(operands)
        specs = self._specs(self.named([None if each is None else spec_of(each) for each in operands]))
        dtype = working_dtype(given.x.dtype)
        x = cast(given.x, dtype)
        x = x.swapaxes(0, 1) if self.layout else x
        with np.errstate(all="ignore"):
            y, *states = self._run(x, given)
        if self.layout:
            y, states = y.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in states]
        results = [cast(each, given.x.dtype) for each in (y, *states)]
        return selected(results, present(specs, self.annotations))

    def flops(self, output: Any, *operands: object) -> int:
        named = self.named(operands)
        steps = product(named.x.shape[:-1]) or 0
        return 2 * steps * sum(product(each.shape) or 0 for each in (named.w, named.r))

    @property
    def names(self) -> tuple[str, ...]:
        """Activations of each gate in lower case, direction by direction, or once for both."""
        return tuple(each.lower() for each in self.activations or self.defaults)

    def results(self, given: Operands) -> tuple[str, ...]:
        """Return the kind of each output: y, or the last h or c."""
        return tuple("yhc"[index] for index in present(self._specs(given), self.annotations))

    def _run(self, x: Array, given: Operands) -> list[Array]:
        """Return the outputs (T, D, B, H) and the last states (D, B, H)."""
        count = len(x)
        lengths = np.full(x.shape[1], count) if given.lengths is None else checked_lengths(given.lengths, count)
        outputs, finals = [], []
        for d, backward in enumerate(self.directions):
            steps = turned(x, lengths) if backward else x
            y, *last = self._direction(d, steps, lengths, given)
            outputs.append(turned(y, lengths) if backward else y)
            finals.append(last)
        return [np.stack(outputs, axis=1), *[np.stack(each) for each in zip(*finals, strict=True)]]

    def _direction(self, d: int, x: Array, lengths: Array, given: Operands) -> list[Array]:
        dtype, size = x.dtype, self._size(given.r.shape)
        rows = self.gates * size
        bias = np.zeros(2 * rows, dtype) if given.b is None else cast(given.b[d], dtype)
        inner = self._input_bias(bias[:rows], bias[rows:], size)
        cell = Cell(
            recurrent=np.ascontiguousarray(cast(given.r[d], dtype).T),
            hidden_bias=bias[rows:],
            peepholes=None if given.p is None else cast(given.p[d], dtype),
            activations=self._activations[d],
        )
        products = x @ cast(given.w[d], dtype).T + inner
        states = [self._initial(each, d, x.shape[1], size, dtype) for each in self._state_operands(given)]
        y = np.zeros((len(x), x.shape[1], size), dtype)
        for step, product_ in enumerate(cancellable(products)):
            is_on = (step < lengths)[:, None]
            new = self._step(cell, product_, states, size)
            states = [np.where(is_on, each, old) for each, old in zip(new, states, strict=True)]
            y[step] = np.where(is_on, states[0], 0)
        return [y, *states]

    def _input_bias(self, input: Array, hidden: Array, size: int) -> Array:
        """Return the bias added to the input's product, for all steps at once."""
        return input + hidden

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        """Return the states after one step."""
        raise NotImplementedError

    def _clipped(self, x: Array) -> Array:
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)

    def _initial(self, state: Array | None, d: int, batch: int, size: int, dtype: Any) -> Array:
        if state is None:
            return np.zeros((batch, size), dtype)
        return cast(state[:, d] if self.layout else state[d], dtype)

    def _state_operands(self, given: Operands) -> list[Array | None]:
        return [given.h, given.c] if self.has_cell else [given.h]

    @property
    def directions(self) -> tuple[bool, ...]:
        """For each direction, whether it runs backwards."""
        return _DIRECTIONS[self.direction]

    @cached_property
    def _activations(self) -> list[list[Activation]]:
        """Activations of each direction."""
        count = len(self.directions)
        names = self.activations or self.defaults * count
        if len(names) == len(self.defaults) and count == 2:
            names = names * 2
        if len(names) != len(self.defaults) * count:
            expected = f"{len(self.defaults) * count} activations"
            raise ParameterError("activations do not fit", found=list(names), expected=expected)
        alphas, betas = iter(self.activation_alpha), iter(self.activation_beta)
        activations = [activation(name, alphas, betas) for name in names]
        return [activations[d * len(self.defaults) : (d + 1) * len(self.defaults)] for d in range(count)]

    def named(self, operands: Sequence[Any]) -> Operands:
        """Return the operands by name.

        Unnamed operands are identified by rank and width: W and R have three axes, bias and peepholes two, lengths one.
        """
        given = [each for each in operands if each is not None]
        for each in given:
            tensor(each, "operand")
        if self.annotations.are_named:
            return self._checked(Operands(**dict(zip(_NAMES, operands, strict=False))))
        if len(given) < 3 or [len(each.shape) for each in given[:3]] != [3, 3, 3]:
            raise ShapeError(
                "input and weights are needed", found=", ".join(format_shape(each.shape) for each in given),
                expected="[T, B, I], [D, G*H, I], [D, G*H, H]",
            )  # fmt: skip
        names: dict[str, Any] = {}
        for each in given[3:]:
            name = self._name_of(len(each.shape), each.shape, given[2].shape, names)
            if name is None or name in names:
                raise ShapeError("an operand does not fit", found=format_shape(each.shape))
            names[name] = each
        return Operands(x=given[0], w=given[1], r=given[2], **names)

    def _checked(self, given: Operands) -> Operands:
        """Return named operands unchanged; ranks are checked together with sizes."""
        for name, rank in {"w": 3, "r": 3, "b": 2, "lengths": 1, "h": 3, "c": 3, "p": 2, "x": 3}.items():
            each = getattr(given, name)
            if each is not None and len(each.shape) != rank:
                raise ShapeError(
                    f"operand '{name}' does not fit", found=format_shape(each.shape), expected=f"{rank} axes"
                )
        if not self.has_cell and (given.c is not None or given.p is not None):
            raise ShapeError("an operand does not fit", found="a cell state", expected="an LSTM")
        return given

    def _name_of(self, rank: int, shape: Shape, recurrent: Shape, taken: Any) -> str | None:
        if rank == 1:
            return "lengths"
        if rank == 2:
            return "p" if self.has_cell and shape[1] == 3 * (recurrent[2] or 0) and "h" in taken else "b"
        if rank == 3:
            return ("h" if "h" not in taken else "c") if self.has_cell else "h"
        return None

    def _size(self, recurrent: Shape) -> int:
        return recurrent[2] or 0

    def _specs(self, given: Operands) -> list[TensorSpec]:
        """Return the specs of Y and the last states."""
        spec = tensor(given.x, "input", FLOATING)
        size, count = given.r.shape[2], len(self.directions)
        rows = None if size is None else self.gates * size
        steps, batch = (spec.shape[1], spec.shape[0]) if self.layout else spec.shape[:2]
        state: Shape = (batch, count, size) if self.layout else (count, batch, size)
        width = spec.shape[2]
        self._check("W", given.w.shape, (count, rows, width))
        self._check("R", given.r.shape, (count, rows, size if self.hidden_size is None else self.hidden_size))
        self._check("bias", _shape(given.b), (count, None if rows is None else 2 * rows))
        self._check("lengths", _shape(given.lengths), (batch,))
        self._check("the initial state", _shape(given.h), state)
        self._check("the initial cell", _shape(given.c), state)
        self._check("peepholes", _shape(given.p), (count, None if size is None else 3 * size))
        y: tuple[Dim, ...] = (batch, steps, count, size) if self.layout else (steps, count, batch, size)
        states = [state, state] if self.has_cell else [state]
        return [TensorSpec(shape, spec.dtype) for shape in (y, *states)]

    def _check(self, name: str, found: Shape | None, expected: Shape) -> None:
        if found is not None:
            check_shape(found, expected, f"{name} does not fit")


def _shape(operand: Any) -> Shape | None:
    return None if operand is None else operand.shape


@register("LSTM")
class OnnxLSTM(OnnxRecurrent):
    """Long short-term memory: gates i, o, f, c; C = f(ft) * C + f(it) * g(ct), H = f(ot) * h(C).

    A peephole adds P * C to the gates i, o and f, in this order.
    """

    gates = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")
    has_cell = True

    input_forget: bool = False

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        h, c = states
        f, g, last = cell.activations
        gate = product_ + h @ cell.recurrent
        i, o, forget, new = (gate[:, k * size : (k + 1) * size] for k in range(4))
        p = [0, 0, 0] if cell.peepholes is None else [cell.peepholes[k * size : (k + 1) * size] for k in range(3)]
        i = f(self._clipped(i + p[0] * c))
        forget = 1 - i if self.input_forget else f(self._clipped(forget + p[2] * c))
        c = forget * c + i * g(self._clipped(new))
        o = f(self._clipped(o + p[1] * c))
        return [o * last(c), c]


@register("GRU")
class OnnxGRU(OnnxRecurrent):
    """Gated recurrent unit: gates z, r, h; H = (1 - z) * h + z * H.

    With linear_before_reset the reset gate r scales H's product with its weights, else H itself.
    """

    gates = 3
    defaults = ("Sigmoid", "Tanh")

    linear_before_reset: bool = False

    def _input_bias(self, input: Array, hidden: Array, size: int) -> Array:
        if not self.linear_before_reset:
            return input + hidden
        hidden_part = np.concatenate([hidden[: 2 * size], np.zeros(size, hidden.dtype)])
        return np.asarray(input + hidden_part)

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        (h,) = states
        f, g = cell.activations
        gates = f(self._clipped(product_[:, : 2 * size] + h @ cell.recurrent[:, : 2 * size]))
        z, r = gates[:, :size], gates[:, size:]
        if self.linear_before_reset:
            inner = r * (h @ cell.recurrent[:, 2 * size :] + cell.hidden_bias[2 * size :])
        else:
            inner = (r * h) @ cell.recurrent[:, 2 * size :]
        new = g(self._clipped(product_[:, 2 * size :] + inner))
        return [(1 - z) * new + z * h]


@register("RNN")
class OnnxRNN(OnnxRecurrent):
    """Plain recurrence: H = f(weights times input and H)."""

    gates = 1
    defaults = ("Tanh",)

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        (h,) = states
        return [cell.activations[0](self._clipped(product_ + h @ cell.recurrent))]


@register("DynamicQuantizeLSTM")
class DynamicQuantizeLSTM(OnnxLSTM):
    """LSTM whose input, and in every step H of all rows, is rounded to 255 steps over its extremes and zero.

    Weights are already dequantised.
    """

    def _run(self, x: Array, given: Operands) -> list[Array]:
        return super()._run(rounded(x), given)

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        h, *others = states
        return super()._step(cell, product_, [rounded(h), *others], size)


def rounded(x: Array) -> Array:
    """Quantise x with DynamicQuantizeLinear and dequantise it."""
    codes, scale, zero = bytes_between(x)
    return np.asarray((codes.astype(x.dtype) - zero) * scale.astype(x.dtype))
