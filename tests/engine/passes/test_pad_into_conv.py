"""Zeros around an input go into the convolution or pool that pads anyway; other padding stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.passes.pad_into_conv import pad_into_conv
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, names

RANDOM = np.random.default_rng(5)
SHAPE = (2, 4, 9, 9)


def padded(pad: Operator, user: Operator, shape: tuple[int | None, ...] = SHAPE) -> Any:
    """Return a graph of the padding and its user."""
    attributes = {key: each.data for key, each in user.attributes.items()}
    return built(
        INPUT,
        op(pad.type, "pad", "0", "1", **pad.params),
        op(user.type, "user", "1", "2", **user.params, **attributes),
        op("pnnx.Output", "out", "2"),
        _0=shape,
    )


def conv(kernel: tuple[int, ...] = (3, 3), **params: Any) -> Operator:
    weight = RANDOM.standard_normal((5, 4, *kernel)).astype(F32)
    return op(f"nn.Conv{len(kernel)}d", "user", bias=False, weight=weight, **params)


def zero_pad(*amounts: int) -> Operator:
    return op("nn.ZeroPad2d", "pad", padding=amounts)


def pad(*amounts: int, **params: Any) -> Operator:
    return op("F.pad", "pad", pad=amounts, mode="constant", **{"value": None, **params})


TAKEN = [
    (zero_pad(1, 1, 2, 2), conv(), (2, 1)),
    (zero_pad(1, 1, 1, 1), conv(padding=(1, 1)), (2, 2)),
    (zero_pad(1, 1, 1, 1), conv(padding="valid", stride=(2, 2)), (1, 1)),
    (pad(2, 2), conv(), (0, 2)),
    (pad(1, 1, 1, 1, value=0.0), conv(dilation=(2, 2)), (1, 1)),
    (pad(1, 1, 1, 1, 0, 0), conv(), (1, 1)),
    (zero_pad(0, 1, 0, 1), conv((2, 2)), "same"),
    (zero_pad(1, 2, 1, 1), conv((3, 4)), "same"),
    (zero_pad(1, 1, 0, 0), op("nn.AvgPool2d", "user", kernel_size=(3, 3), stride=(2, 2), padding=(0, 0)), (0, 1)),
    (zero_pad(1, 1, 1, 1), op("F.avg_pool2d", "user", kernel_size=(4, 4), stride=None, padding=(1, 1)), (2, 2)),
]

LEFT = [
    (zero_pad(1, 0, 1, 0), conv()),
    (zero_pad(0, 1, 0, 1), conv((2, 2), stride=(2, 2))),
    (zero_pad(1, 1, 1, 1), conv(padding=(1, 1), padding_mode="reflect")),
    (zero_pad(-1, -1, 0, 0), conv()),
    (pad(1, 1, 1, 1, value=1.0), conv()),
    (pad(1, 1, 1, 1, value=-0.0), conv()),
    (op("F.pad", "pad", pad=(1, 1), mode="reflect"), conv()),
    (pad(0, 0, 0, 0, 0, 0, 1, 1), conv()),
    (zero_pad(1, 1, 1, 1), op("nn.MaxPool2d", "user", kernel_size=(3, 3), stride=(2, 2), padding=(0, 0))),
    (zero_pad(2, 2, 2, 2), op("nn.AvgPool2d", "user", kernel_size=(3, 3), stride=(2, 2), padding=(0, 0))),
    (
        zero_pad(1, 1, 1, 1),
        op("nn.AvgPool2d", "user", kernel_size=(3, 3), stride=(2, 2), padding=(0, 0), count_include_pad=False),
    ),
    (
        zero_pad(1, 1, 1, 1),
        op("nn.AvgPool2d", "user", kernel_size=(3, 3), stride=(2, 2), padding=(0, 0), ceil_mode=True),
    ),
    (zero_pad(1, 1, 1, 1), op("nn.ReLU", "user")),
]


@pytest.mark.parametrize(("pad", "user", "padding"), TAKEN)
def test_zeros_go_into_the_operator_that_takes_them(pad: Operator, user: Operator, padding: Any) -> None:
    made = applied(pad_into_conv, padded(pad, user))
    assert names(made) == ["user"]
    assert made.source.operators[1].params["padding"] == padding


@pytest.mark.parametrize(("pad", "user"), LEFT)
def test_what_the_operator_cannot_do_itself_stays(pad: Operator, user: Operator) -> None:
    assert_untouched(pad_into_conv, padded(pad, user))


def test_dynamic_sizes_are_no_hindrance() -> None:
    made = applied(pad_into_conv, padded(zero_pad(1, 1, 1, 1), conv(), (None, 4, None, None)))
    assert names(made) == ["user"]


def test_an_unbatched_image_is_padded_too() -> None:
    assert names(applied(pad_into_conv, padded(zero_pad(1, 1, 1, 1), conv(), (4, 9, 9)))) == ["user"]


def test_a_weight_that_is_an_operand_hinders_nothing() -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "w"),
        op("F.pad", "pad", "0", "1", pad=(1, 1, 1, 1), mode="constant", value=0),
        op("F.conv2d", "user", "1 w", "2", bias=None, padding=(0, 0), labels=("input", "weight")),
        op("pnnx.Output", "out", "2"),
        _0=SHAPE,
        _w=(5, 4, 3, 3),
    )
    assert names(applied(pad_into_conv, graph)) == ["user"]


def test_an_input_padded_for_others_too_stays_padded() -> None:
    weight = RANDOM.standard_normal((4, 4, 3, 3)).astype(F32)
    graph = built(
        INPUT,
        op("nn.ZeroPad2d", "pad", "0", "1", padding=(1, 1, 1, 1)),
        op("nn.Conv2d", "user", "1", "2", bias=False, weight=weight, padding=(1, 1)),
        op("torch.add", "sum", "1 2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=SHAPE,
    )
    assert_untouched(pad_into_conv, graph)


def test_a_padded_weight_is_not_taken_for_a_padded_input() -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "w"),
        op("F.pad", "pad", "w", "1", pad=(1, 1, 1, 1), mode="constant", value=0),
        op("F.conv2d", "user", "0 1", "2", bias=None, padding=(0, 0), labels=("input", "weight")),
        op("pnnx.Output", "out", "2"),
        _0=SHAPE,
        _w=(5, 4, 1, 1),
    )
    assert_untouched(pad_into_conv, graph)
