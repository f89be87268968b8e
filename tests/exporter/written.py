"""Functions that write into what others share, to export. Imported only where torch is there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FUNCTIONS: dict[str, Callable[..., Tensor]] = {}


class Written(nn.Module):
    """A function of a linear layer, what it gives and its operand; shapes (batch, 8) and (batch, 24)."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 24)
        self.relu = nn.ReLU(inplace=True)
        self.function = FUNCTIONS[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x, self.linear(x))


def _case(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    FUNCTIONS[function.__name__] = function
    return function


@_case
def a_part_of_a_bias(net: Written, x: Tensor, y: Tensor) -> Tensor:
    bias = net.linear.bias.clone()
    bias[8:16].zero_()
    return F.linear(x, net.linear.weight, bias)


@_case
def an_assignment_to_a_part_of_a_bias(net: Written, x: Tensor, y: Tensor) -> Tensor:
    bias = net.linear.bias.clone()
    bias[8:16] = 0
    return F.linear(x, net.linear.weight, bias)


@_case
def columns_by_a_computed_index_into_zeros(net: Written, x: Tensor, y: Tensor) -> Tensor:
    canvas = torch.zeros(24, 64)
    canvas[:, (x[:, 0] > 0) * 8 + (x[:, 1] > 0) * 4 + (x[:, 2] > 0) * 2 + (x[:, 3] > 0)] = y.t()
    return canvas


@_case
def places_by_two_indices_and_a_number(net: Written, x: Tensor, y: Tensor) -> Tensor:
    canvas = torch.zeros(2, 24, 3, 4)
    canvas[1, :, (x[:, 0] > 0).long(), torch.arange(4)] = y.t()
    canvas[..., 2, [1, 3]] = x[0, 0]
    return canvas


@_case
def rows_of_a_part_of_zeros(net: Written, x: Tensor, y: Tensor) -> Tensor:
    canvas = torch.zeros(9, 30)
    canvas[1:, None, 3:27][(x[:, 0] > 0).long() + torch.arange(4), 0] = y
    return canvas


@_case
def masked_places_of_zeros(net: Written, x: Tensor, y: Tensor) -> Tensor:
    canvas = torch.zeros(4, 8, 2)
    canvas[x > 0, 1] = 2
    canvas[x < 0] = x[0, :2]
    return canvas


@_case
def scattered_and_added_to_zeros(net: Written, x: Tensor, y: Tensor) -> Tensor:
    places = (x > 0).long().cumsum(1)
    ones = torch.zeros(4, 9).scatter_(1, places, 1.0)
    sums = torch.zeros(9, 8).index_add_(0, places[:, 3], x)
    return torch.cat([ones.t(), sums.masked_fill_(sums > 1, -1)], 1)


@_case
def rows_and_columns_of_a_weight(net: Written, x: Tensor, y: Tensor) -> Tensor:
    weight = net.linear.weight.clone()
    weight[3, :] = x[0]
    weight[:, 1].zero_()
    return x @ weight.t()


@_case
def one_of_three_chunks(net: Written, x: Tensor, y: Tensor) -> Tensor:
    a, b, _ = y.chunk(3, 1)
    b.add_(a)
    return y


@_case
def one_of_what_is_unbound(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y = y.view(-1, 3, 8)
    _, key, _ = y.unbind(1)
    key.neg_()
    return y * 2


@_case
def all_through_another_shape(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y.view(-1, 4, 6).mul_(2)
    return y


@_case
def a_part_of_another_shape(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y.view(-1, 4, 6)[:, 1:3, 2:4] = 0.5
    return y


@_case
def the_turned(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y.t()[2:5].mul_(3)
    return y


@_case
def a_diagonal(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y = y.view(-1, 4, 6)
    y.diagonal(dim1=1, dim2=2).fill_(0.0)
    return y


@_case
def a_part_with_an_axis_more(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y[:, None, 3:5].add_(1)
    y[:, None, 8:16] = x[:, None]
    return y


@_case
def every_second(net: Written, x: Tensor, y: Tensor) -> Tensor:
    y[:, ::2] = x.repeat(1, 2)[:, :12]
    y[:, 1::2].neg_()
    return y


@_case
def what_a_view_was_taken_of(net: Written, x: Tensor, y: Tensor) -> Tensor:
    part = y[:, 2:5]
    y.mul_(2)
    return part + 1


@_case
def what_is_chosen_in_a_chunk(net: Written, x: Tensor, y: Tensor) -> Tensor:
    part, _ = y.chunk(2, 1)
    part[part > 0] = 0
    return y


@_case
def a_layer_in_place(net: Written, x: Tensor, y: Tensor) -> Tensor:
    return net.relu(y.view(-1, 2, 12))


@_case
def a_layer_in_place_of_what_is_used_again(net: Written, x: Tensor, y: Tensor) -> Tensor:
    z = net.relu(y.view(-1, 2, 12))
    return z.reshape(-1, 24) + y


@_case
def windows_that_are_summed(net: Written, x: Tensor, y: Tensor) -> Tensor:
    total = torch.zeros(x.shape[0], 20)
    for begin in range(0, 13, 4):
        total[:, begin : begin + 8] += x * (begin + 1)
    return total


@_case
def a_mask_of_regions(net: Written, x: Tensor, y: Tensor) -> Tensor:
    mask = torch.ones(6, 6)
    mask[2:4, :] = 0
    mask[:, 1:2] *= 5
    return y.view(-1, 4, 6) @ mask


@_case
def parts_of_parts_of_zeros(net: Written, x: Tensor, y: Tensor) -> Tensor:
    result = torch.zeros(4, 4, 8)
    result[:, 1:3][:, :, 2:6] += x[:, None, :4]
    result[:, 0] = x
    result[1, :, 3] = x[1, :4]
    result[:, None, 3, 4:].add_(x[:, None, 4:])
    return result


@_case
def a_copy_of_another_type(net: Written, x: Tensor, y: Tensor) -> Tensor:
    result = torch.zeros(4, 24)
    result.view(4, 3, 8)[:, 1].copy_((x > 0).to(torch.int64))
    return result


class Doubled(torch.autograd.Function):
    """A function with a derivative of its own, which keeps something for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        ctx.save_for_backward(x)
        return x * factor if ctx.needs_input_grad[0] else x * factor + 0

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


doubled = Doubled.apply


class Apart(torch.autograd.Function):
    """The same written in the newer way."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)


@_case
def derivatives_of_their_own(net: Written, x: Tensor, y: Tensor) -> Tensor:
    return Doubled.apply(y, 2.0) + Apart.apply(y) + doubled(x.repeat(1, 3), 3.0)


@torch.jit.script_if_tracing
def _padded(x: Tensor, size: int) -> Tensor:
    if x.size(1) < size:
        x = F.pad(x, [0, size - x.size(1)])
    return x


def _scripted_once_traced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(function)
    def wrapper(*operands: Any) -> Tensor:
        return torch.jit.script(function)(*operands) if torch.jit.is_tracing() else function(*operands)

    return wrapper


@_scripted_once_traced
def _cut(x: Tensor, size: int) -> Tensor:
    if x.size(1) > size:
        x = x[:, :size]
    return x


@_case
def what_is_scripted_once_it_is_traced(net: Written, x: Tensor, y: Tensor) -> Tensor:
    return _padded(y, 30) + _cut(_padded(y * 2, 32), 30)


class _Choosy(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Retried(nn.Module):
    """Calls its layers with an option that they do not know, and again without it; has a method that is no script."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Choosy(8, 6), nn.ReLU(), nn.Linear(6, 4)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            try:
                x = layer(x, lengths=None)
            except TypeError:
                x = layer(x)
        return x

    @torch.jit.export
    def lengths(self, x: Tensor, lengths: Tensor) -> Tensor:
        return x + lengths.no_such_thing


class Rounded(nn.Module):
    """Quotients that are rounded, of numbers of both signs: by numbers and by tensors, of floats and of integers."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        n = (10 * x).long()
        quotients = [
            torch.div(x, 0.3, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            x.div(other=y.abs() + 1, rounding_mode="floor"),
            n.div(3, rounding_mode="trunc"),
            torch.divide(n, (10 * y).long().abs() + 2, rounding_mode="trunc"),
            torch.div(n, 7, rounding_mode="floor"),
            torch.div(x, y, rounding_mode=None),
        ]
        return torch.cat([each.float() for each in quotients], 1)


class Masked(nn.Module):
    """Attention with a causal mask, a mask of padding, or both; a causal one is announced as such."""

    def __init__(self, masks: str) -> None:
        super().__init__()
        self.table, self.masks = nn.Embedding(9, 8), masks
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        x, given = self.table(ids), {}
        if "padding" in self.masks:
            given["padding"] = ids == 0
        if "causal" in self.masks:
            given["mask"] = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        is_causal = "causal" in self.masks
        padding, mask = given.get("padding"), given.get("mask")
        y = self.attention(x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=is_causal)[0]
        return self.encoder(y, mask, padding, is_causal=is_causal)
