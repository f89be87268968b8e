"""The registry: one layer a type, unknown types reported together, users' layers from outside."""

from __future__ import annotations

import dataclasses

import pytest

from engine import Layer, ParameterError, Registry, UnsupportedOperatorError
from engine.layers import registry
from engine.tensor import Array, TensorSpec


@pytest.fixture
def empty() -> Registry:
    return Registry()


class Double(Layer):
    """Twice the input."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return input

    def forward(self, input: Array) -> Array:
        return input * 2


def test_type_registered_twice_is_refused(empty: Registry) -> None:
    empty.register("my.Double")(Double)
    with pytest.raises(ParameterError, match=r"my\.Double: operator type is registered already: found Double"):
        empty.register("my.Double")(Double)


def test_only_layers_can_be_registered(empty: Registry) -> None:
    with pytest.raises(ParameterError, match="only a class derived from Layer"):
        empty.register("my.Int")(int)  # type: ignore[type-var]


def test_registration_that_names_an_unknown_field_is_refused(empty: Registry) -> None:
    with pytest.raises(
        ParameterError, match=r"my\.Double: the registration uses names .*: found slope, expected input"
    ):
        empty.register("my.Double", presets={"slope": 2})(Double)


def test_all_unknown_types_are_reported_at_once_with_the_nearest_names() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        registry.check([("nn.Relu", "relu_1"), ("my.Thing", "op_7"), ("nn.ReLU", "fine"), ("my.Thing", "op_9")])
    assert str(caught.value) == (
        "no layer for 2 operator types: 'nn.Relu' (relu_1; did you mean 'nn.ReLU'?), 'my.Thing' (op_7, op_9)"
        "; --plugin FILE.py loads layers of your own (engine.register)"
    )


def test_registrations_inside_extended_end_with_it() -> None:
    with registry.extended():
        registry.register("my.Double")(Double)
        assert "my.Double" in registry
    assert "my.Double" not in registry


def test_a_layer_is_frozen() -> None:
    from engine.layers.elementwise.piecewise import LeakyReLU

    with pytest.raises(AttributeError):
        LeakyReLU(negative_slope=0.1).negative_slope = 1.0  # type: ignore[misc]


def test_what_every_type_of_ours_declares_can_be_read() -> None:
    wrong = {}
    for type in sorted(registry):
        try:
            registry[type].check()
        except ParameterError as error:
            wrong[type] = str(error)
    assert not wrong


def test_layers_are_compared_shown_and_kept_as_frozen_dataclasses_are() -> None:
    class Scaled(Layer):
        by: float = 2.0

        def forward(self, input: object) -> object:
            return input

    class Same(Scaled):
        pass

    assert Scaled() == Scaled(by=2.0) != Scaled(by=3.0)
    assert Same() != Scaled()
    assert hash(Same(by=1.0)) == hash(Same(by=1.0))
    assert repr(Same(by=1.0)).endswith("Same(by=1.0)")
    for layer in (Scaled(), Same()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            layer.by = 1.0  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            del layer.by
    with pytest.raises(TypeError, match="unexpected keyword argument 'off'"):
        Same(off=1)  # type: ignore[call-arg]


def test_layers_are_made_as_dataclasses_are() -> None:
    class Grown(Layer):
        by: float
        names: list[str] = dataclasses.field(default_factory=list)
        twice: float = 0.0

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.by)

        def forward(self, input: object) -> object:
            return input

    first, second = Grown(by=1.0), Grown(by=1.0)
    assert first.twice == 2.0 and first.names == [] and first.names is not second.names
    assert dataclasses.replace(first, by=3.0).twice == 6.0
    with pytest.raises(TypeError, match="missing a required keyword-only argument: 'by'"):
        Grown()  # type: ignore[call-arg]
    assert [each.name for each in dataclasses.fields(Grown)] == ["by", "names", "twice"]
