"""LSTM, GRU and plain recurrent networks: several layers, one or both directions, projected states.

The converter lists outputs in the order of their use and drops unused ones. Annotated shapes distinguish the sequence
output from the states, and an LSTM's h from its c if they differ in width; otherwise the order is output, h, c.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import permutations
from typing import Any, ClassVar, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register, registry
from engine.layers.operands.axes import may_match
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import working_dtype
from engine.layers.recurrent.cells import (
    Activation,
    Cell,
    Rounds,
    Step,
    activation,
    gru_step,
    lstm_step,
    reversed_steps,
    rnn_step,
    rounded,
    scan,
)
from engine.promotion import cast, float_dtype
from engine.tensor import Array, Shape, TensorSpec, format_shape, product

_MOST_LAYERS = 4096
_REPAIRED = ("h", "c", "output")


class Recurrent(Layer):
    """Base of recurrent networks.

    Shapes:
        input (T, B, I), with batch_first (B, T, I), or unbatched (T, I); initial states (layers * D, B, P), zeros by
        default  ->  output (T, B, D * P), in the input's layout; final states (layers * D, B, P)
        D is 2 for bidirectional networks; P is the width of a state: proj_size or else hidden_size; c has hidden_size.
        lengths (B,), integers: the steps of each sequence; the output is zero after them (ONNX)
    Parameters:
        bias: ignored, as the attributes show it.
        reverse: the only direction begins with the last step (ONNX).
        activations, activation_alpha, activation_beta: names and coefficients of each activation, direction by
            direction, or once for all (ONNX).
        clip: bound of the activations' inputs (ONNX).
        rounds: input and h are rounded to bytes of their range before they are multiplied: ``each`` row, which is a
            step of a sequence, or ``all`` rows of a step, and the whole input, together (onnxruntime).
    Weights may be integers; those of weight_ih_* and weight_hh_* are multiplied by scale_ih_* and scale_hh_*, (rows,).
    Raises:
        ShapeError: when operands do not fit, or the sequence is empty.
        ParameterError: when an attribute is missing or does not fit.
    """

    loops = True

    gates: ClassVar[int]
    state_names: ClassVar[tuple[str, ...]] = ("h",)
    usual: ClassVar[tuple[str, ...]]
    """The activations of PyTorch."""

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    batch_first: bool = False
    bidirectional: bool = False
    proj_size: int = 0
    reverse: bool = False
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    rounds: Rounds = ""
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if min(self.input_size, self.hidden_size) < 1 or not 1 <= self.num_layers <= _MOST_LAYERS:
            sizes = f"input_size {self.input_size}, hidden_size {self.hidden_size}, num_layers {self.num_layers}"
            expected = f"positive sizes, at most {_MOST_LAYERS} layers"
            raise ParameterError("sizes do not fit", found=sizes, expected=expected)
        if not 0 <= self.proj_size < self.hidden_size:
            raise ParameterError("proj_size does not fit", found=self.proj_size, expected=f"below {self.hidden_size}")
        if len(self.annotations.outputs) > 1 + len(self.state_names):
            found = len(self.annotations.outputs)
            raise ParameterError("too many outputs", found=found, expected=f"at most {1 + len(self.state_names)}")
        _ = self._activations

    def infer(self, input: TensorSpec, *others: TensorSpec | None, **weights: TensorSpec) -> Any:
        self._check_weights({name: spec.shape for name, spec in weights.items()})
        self._check_operands(input.shape, [None if each is None else each.shape for each in others])
        shapes = self._shapes(input.shape)
        specs = tuple(TensorSpec(shapes[name], float_dtype(input.dtype)) for name in self.outputs)
        return specs[0] if len(specs) == 1 else specs

    def flops(self, output: Any, *operands: object) -> int:
        spec = operands[0]
        steps = product(spec.shape[:-1]) or 0 if isinstance(spec, TensorSpec) else 0
        weights = [product(shape) or 0 for name, shape in self._expected.items() if name.startswith("weight")]
        return 2 * steps * sum(weights)

    def _run(
        self, input: Array, states: Sequence[Array | None], lengths: Array | None, weights: Mapping[str, Array]
    ) -> Any:
        dtype = float_dtype(input.dtype)
        working = working_dtype(dtype)
        x = self._steps_first(cast(input, working))
        count = self.num_layers * len(self.suffixes)
        initial = [
            np.zeros((count, x.shape[1], width), working)
            if state is None
            else cast(state, working).reshape(count, x.shape[1], width)
            for state, width in zip(states, self.state_widths, strict=True)
        ]
        ends = np.full(x.shape[1], len(x)) if lengths is None else _checked(lengths, len(x))
        wide = {name: cast(array, working) for name, array in weights.items()}
        for name in weights:
            if name.startswith("scale"):
                scaled = name.replace("scale", "weight")
                wide[scaled] = wide[scaled] * wide[name][:, None]
        with np.errstate(all="ignore"):
            output, final = self._stack(x, initial, ends, wide)
        if input.ndim == 2:
            output, final = output[:, 0], [state[:, 0] for state in final]
        elif self.batch_first:
            output = output.swapaxes(0, 1)
        found = dict(zip(("output", *self.state_names), (output, *final), strict=True))
        results = tuple(cast(found[name], dtype) for name in self.outputs)
        return results[0] if len(results) == 1 else results

    def _stack(
        self, x: Array, states: Sequence[Array], lengths: Array, weights: Mapping[str, Array]
    ) -> tuple[Array, list[Array]]:
        """Run all layers: return the last one's output (T, B, D * P) and all final states (layers * D, B, width)."""
        final = []
        for layer in range(self.num_layers):
            rows, outputs = rounded(x, self.rounds), []
            for direction, suffix in enumerate(self.suffixes):
                index = layer * len(self.suffixes) + direction
                cell = self._cell(weights, f"l{layer}{suffix}", direction)
                steps = reversed_steps(rows, lengths) if self.backward[direction] else rows
                output, last = scan(self._step, cell, steps, [state[index] for state in states], lengths)
                outputs.append(reversed_steps(output, lengths) if self.backward[direction] else output)
                final.append(last)
            x = outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=-1)
        return x, [np.stack(each) for each in zip(*final, strict=True)]

    @property
    @abstractmethod
    def _step(self) -> Step:
        """Function that computes one step."""

    def _cell(self, weights: Mapping[str, Array], end: str, direction: int) -> Cell:
        return Cell(
            input_weight=weights[f"weight_ih_{end}"],
            hidden_weight=weights[f"weight_hh_{end}"],
            input_bias=weights.get(f"bias_ih_{end}"),
            hidden_bias=weights.get(f"bias_hh_{end}"),
            projection=weights.get(f"weight_hr_{end}"),
            peepholes=weights.get(f"weight_peephole_{end}"),
            activations=self._activations[direction],
            clip=self.clip,
            rounds=self.rounds,
        )

    @cached_property
    def _activations(self) -> list[list[Activation]]:
        """Activations of each direction."""
        each, count = len(self.usual), len(self.suffixes)
        names = self.activations or self.usual
        names = names * count if len(names) == each else names
        if len(names) != each * count:
            expected = f"{each * count} activations"
            raise ParameterError("activations do not fit", found=list(names), expected=expected)
        alphas, betas = iter(self.activation_alpha), iter(self.activation_beta)
        found = [activation(name, alphas, betas) for name in names]
        return [found[first : first + each] for first in range(0, len(found), each)]

    @property
    def is_usual(self) -> bool:
        """Return whether the activations are those of PyTorch."""
        names = tuple(name.lower() for name in self.activations or self.usual)
        return names in (self.usual, self.usual * 2)

    def _steps_first(self, input: Array) -> Array:
        """Return the input as (T, B, I)."""
        if input.ndim == 2:
            return input[:, None]
        return input.swapaxes(0, 1) if self.batch_first else input

    @cached_property
    def suffixes(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def backward(self) -> tuple[bool, ...]:
        """For each direction, whether it begins with the last step."""
        return (False, True) if self.bidirectional else (self.reverse,)

    @property
    def width(self) -> int:
        """Width of h and of the output in one direction."""
        return self.proj_size or self.hidden_size

    @property
    def state_widths(self) -> tuple[int, ...]:
        return (self.width, self.hidden_size)[: len(self.state_names)]

    def _shapes(self, input: Shape) -> dict[str, Shape]:
        """Return the shape of every output, by name."""
        output = (*input[:-1], self.width * len(self.suffixes))
        batch = input[0 if self.batch_first else 1]
        lead = (self.num_layers * len(self.suffixes), *((batch,) if len(input) == 3 else ()))
        states = [(*lead, width) for width in self.state_widths]
        return dict(zip(("output", *self.state_names), (output, *states), strict=True))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The kind of each output: the first order that fits the annotations."""
        annotated = self.annotations.outputs
        # If a model uses h, c, output, the converter writes output, h, c; so h, c, output must be c, h, output.
        orders = sorted(
            permutations(("output", *self.state_names), len(annotated)), key=lambda order: order == _REPAIRED
        )
        source = self.annotations.inputs[0] if self.annotations.inputs else None
        if source is None or source.rank not in (2, 3):
            return orders[0]
        shapes = self._shapes(source.shape)
        for order in orders:
            specs = zip(order, annotated, strict=True)
            if all(spec is None or spec.shape == shapes[name] for name, spec in specs):
                return order
        return orders[0]

    @cached_property
    def _expected(self) -> dict[str, Shape]:
        """The shape of every attribute, by name."""
        rows = self.gates * self.hidden_size
        shapes: dict[str, Shape] = {}
        for layer in range(self.num_layers):
            width = self.width * len(self.suffixes) if layer else self.input_size
            for end in [f"l{layer}{suffix}" for suffix in self.suffixes]:
                shapes |= {f"weight_ih_{end}": (rows, width), f"weight_hh_{end}": (rows, self.width)}
                shapes |= {f"bias_ih_{end}": (rows,), f"bias_hh_{end}": (rows,)} if self.bias else {}
                shapes |= {f"weight_hr_{end}": (self.proj_size, self.hidden_size)} if self.proj_size else {}
        return shapes

    @cached_property
    def _optional(self) -> dict[str, Shape]:
        """The shape of every attribute that may be left out, by name."""
        ends = [f"l{layer}{suffix}" for layer in range(self.num_layers) for suffix in self.suffixes]
        found = {f"scale_{part}_{end}": (self.gates * self.hidden_size,) for end in ends for part in ("ih", "hh")}
        is_lstm = "c" in self.state_names
        return {**found, **({f"weight_peephole_{end}": (3 * self.hidden_size,) for end in ends} if is_lstm else {})}

    def _check_weights(self, shapes: Mapping[str, Shape]) -> None:
        for name in (shapes.keys() - self._optional.keys()) ^ self._expected.keys():
            raise ParameterError(f"attribute '{name}' is {'unknown' if name in shapes else 'missing'}")
        known = {**self._expected, **self._optional}
        for name, shape in shapes.items():
            if not may_match(shape, known[name]):
                expected = format_shape(known[name])
                raise ParameterError(f"attribute '{name}' does not fit", found=format_shape(shape), expected=expected)

    def _check_operands(self, input: Shape, others: Sequence[Shape | None]) -> None:
        if len(input) not in (2, 3) or input[-1] not in (None, self.input_size):
            layout = "[B, T, I]" if self.batch_first else "[T, B, I]"
            expected = f"{layout} or [T, I] with I = {self.input_size}"
            raise ShapeError("input does not fit", found=format_shape(input), expected=expected)
        if input[1 if self.batch_first and len(input) == 3 else 0] == 0:
            raise ShapeError("the sequence is empty", found=format_shape(input), expected="at least one step")
        shapes = self._shapes(input)
        for name, state in zip(self.state_names, others, strict=False):
            if state is not None:
                check_shape(state, shapes[name], f"initial {name} does not fit")
        for lengths in others[len(self.state_names) :]:
            if lengths is not None:
                batch = 1 if len(input) == 2 else input[0 if self.batch_first else 1]
                check_shape(lengths, (batch,), "lengths does not fit")


def _checked(lengths: Array, steps: int) -> Array:
    """Return the lengths; refuse those that do not fit the number of steps."""
    if lengths.dtype.kind not in "iu" or (lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps):
        raise ShapeError("lengths do not fit the steps", found=lengths.tolist()[:8], expected=f"0 to {steps}")
    return lengths


@register("nn.LSTM", ignored=("dropout",))
class LSTM(Recurrent):
    """Long short-term memory: gates i, f, g, o; c = f * c + i * g, h = o * tanh(c), projected if proj_size is set.

    Parameters:
        couples_gates: f is 1 - i (ONNX).
    """

    gates = 4
    state_names = ("h", "c")
    usual = ("sigmoid", "tanh", "tanh")

    couples_gates: bool = False

    def forward(
        self,
        input: Array,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        lengths: Array | None = None,
        **weights: Array,
    ) -> Any:
        return self._run(input, (initial_h, initial_c), lengths, weights)

    @property
    def _step(self) -> Step:
        return partial(lstm_step, couples_gates=self.couples_gates)


@register("nn.GRU", ignored=("dropout",))
class GRU(Recurrent):
    """Gated recurrent unit: gates r, z, n; h = (1 - z) * n + z * h.

    Parameters:
        resets_first: r scales h before its product with the weights (ONNX).
    """

    gates = 3
    usual = ("sigmoid", "tanh")

    resets_first: bool = False

    def forward(
        self, input: Array, initial_h: Array | None = None, lengths: Array | None = None, **weights: Array
    ) -> Any:
        return self._run(input, (initial_h,), lengths, weights)

    @property
    def _step(self) -> Step:
        return partial(gru_step, resets_first=self.resets_first)


@register("nn.RNN", ignored=("dropout",))
class RNN(Recurrent):
    """Plain recurrence: h = tanh or ReLU of weights times input and state."""

    gates = 1

    nonlinearity: Literal["tanh", "relu"] = "tanh"

    def forward(
        self, input: Array, initial_h: Array | None = None, lengths: Array | None = None, **weights: Array
    ) -> Any:
        return self._run(input, (initial_h,), lengths, weights)

    @property
    def usual(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.nonlinearity,)

    @property
    def _step(self) -> Step:
        return rnn_step


for _type in ("LSTM", "GRU", "RNN"):  # weights may be operands, which a module's are not
    registry.alias(f"nn.{_type}", f"engine.{_type}")
