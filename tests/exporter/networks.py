"""Small networks to export. Imported only where torch is there."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Batch norms that are folded, a ReLU that works in place and is called twice, a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(3)
        self.conv2 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)
        for norm in (self.bn1, self.bn2):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + x)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(dim=(2, 3)))


class BareNorm(nn.Module):
    """A layer norm with a weight and no bias, whose weight the converter drops."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4, bias=False)
        self.plain = nn.LayerNorm(4, elementwise_affine=False)
        nn.init.uniform_(self.norm.weight, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + self.plain(x)


class WrittenGelu(nn.Module):
    """GELU as GPT-2 writes it, which the converter takes for the exact one."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x.pow(3))))


class Gelus(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.written, self.plain, self.exact, self.drop = WrittenGelu(), nn.GELU("tanh"), nn.GELU(), nn.Dropout()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.drop(self.written(x)), self.plain(x), self.exact(x)


class TwiceNamed(nn.Module):
    """Layers that are attributes, and parts of a sequence: as temporal convolutional networks are written."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.utils.weight_norm(nn.Conv1d(3, 5, 3, padding=2))
        self.conv2 = nn.utils.weight_norm(nn.Conv1d(5, 5, 3, padding=2))
        self.net = nn.Sequential(self.conv1, nn.ReLU(), self.conv2, nn.ReLU())
        self.transposed = nn.ConvTranspose1d(5, 3, 2, 2, bias=False)
        self.blocks = nn.ModuleList([nn.ModuleDict({"grow": self.transposed, "again": self.transposed})])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.blocks[0]["again"](self.net(x))
        return y


class InPlace(nn.Module):
    """Activations that write over what they are given, each of which the converter would end at."""

    def __init__(self) -> None:
        super().__init__()
        self.acts = nn.ModuleList([nn.ELU(0.7, True), nn.CELU(0.5, True), nn.Hardtanh(-0.5, 0.4, True)])
        self.acts.extend([nn.RReLU(inplace=True), nn.Threshold(-0.1, 0.2, True), nn.ReLU6(True)])
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 1) for _ in self.acts)

    def forward(self, x: Tensor) -> Tensor:
        for conv, act in zip(self.convs, self.acts, strict=True):
            x = act(conv(x))
        return x


class Sequences(nn.Module):
    """Ids and a mask of booleans in, a tuple out; the width of the mask is the length of the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2, 6)
        self.recurrent = nn.GRU(6, 5, batch_first=True)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(ids) * mask.unsqueeze(-1)
        y, state = self.recurrent(x)
        return y, state


class Dictionary(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"double": 2 * x, "negative": -x}


class LosesSlice(nn.Module):
    """The converter drops a slice on a dynamic axis: only PyTorch's answers show it."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 1:] * 2


class Frozen(nn.Module):
    """Takes the branch of the traced input for ever."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 1 else x - 1


class Short(nn.Module):
    """Knows eight positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > 8:
            raise ValueError("at most\n8 positions")
        return x + self.positions(torch.arange(x.size(1)))


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Returns(nn.Module):
    """Returns what cannot be exported."""

    def forward(self, x: Tensor) -> str:
        return "text"


class Gate(nn.Module):
    """Kept as one operator by the exporter; its outputs are used in the other order."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 3)
        self.offset = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(self.scale(x)) * x, (x + self.offset).sum(-1)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, x: Tensor) -> Tensor:
        gated, total = self.gate(x)
        return total.unsqueeze(-1) * 2 + gated


class Cells(nn.Module):
    """A cell called step by step from a state of zeros, of which pnnx computes the first product wrongly."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 5)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state


class Appends(nn.Module):
    """A list that grows in a loop: scripted, pnnx makes a constant of it."""

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for step in range(3):
            parts.append(x[:, step] * step)
        return torch.stack(parts, 1)


class Cancelling(nn.Module):
    """Two sums of the same products in another order, and their difference: nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.Linear(512, 64), nn.Linear(512, 64)
        self.back.weight.data = self.there.weight.data.flip(1).contiguous()
        self.back.bias.data = self.there.bias.data

    def forward(self, x: Tensor) -> Tensor:
        return (self.there(x) - self.back(x.flip(1))) * 1e5


class ClearedBias(nn.Module):
    """A part of a bias is cleared before it is used, as SwinV2 does; pnnx then takes the part for the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        bias = self.linear.bias.clone()
        length = bias.numel() // 3
        bias[length : 2 * length].zero_()
        return nn.functional.linear(x, self.linear.weight, bias)


class SamePadding(nn.Module):
    """Two convolutions that pad as TensorFlow does, from sizes as the tracer sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 4, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.padded(torch.relu(self.first(self.padded(x)))))

    def padded(self, x: Tensor) -> Tensor:
        (top, bottom), (left, right) = map(self.margins, x.size()[-2:])
        return nn.functional.pad(x, (left, right, top, bottom))

    @staticmethod
    def margins(size: Tensor) -> tuple[Tensor, Tensor]:
        missing = torch.clamp(((torch.as_tensor(size) / 2).ceil() - 1) * 2 + 3 - size, min=0).long()
        return missing // 2, missing - missing // 2


class RollsByHalf(nn.Module):
    """Computes with a size in Python, so that the tracer keeps a number."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, int(x.shape[1]) // 2, 1)


class FrozenByAnIndex(nn.Module):
    """Takes another branch where an index is larger than the traced ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.table(x)
        return y if x.max() < 2 else -y


class Best(nn.Module):
    """The places of the largest values."""

    def forward(self, x: Tensor) -> Tensor:
        return x.topk(4).indices


def scripted_appends() -> nn.Module:
    return torch.jit.script(Appends())


def make_classifier() -> nn.Module:
    torch.manual_seed(0)
    return Classifier()


def fails() -> nn.Module:
    raise RuntimeError("first line\nno weights here")


number = 3
relu = nn.ReLU()
attention = nn.MultiheadAttention(4, 2, batch_first=True)
