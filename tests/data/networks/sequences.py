"""Sequences, point clouds and towers: recurrent and temporal networks, PointNet, two inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from building import network
from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool, layers: int = 2) -> None:
        super().__init__()
        self.word = nn.Embedding(30, 8)
        self.rnn = kind(8, 10, layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(20 if bidirectional else 10, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output, _ = self.rnn(self.word(tokens))
        return self.head(output[:, -1])


class LastState(nn.Module):
    """Uses the final states of both directions instead of the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(6, 8, 1, batch_first=True, bidirectional=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output, (h, c) = self.rnn(x)
        return output.mean(1), self.head(torch.cat([h[0], h[1]], 1)) + c[0, :, :3]


class TemporalBlock(nn.Module):
    def __init__(self, i: int, o: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.conv1 = nn.utils.parametrizations.weight_norm(nn.Conv1d(i, o, 3, dilation=dilation))
        self.conv2 = nn.utils.parametrizations.weight_norm(nn.Conv1d(o, o, 3, dilation=dilation))
        self.short = nn.Conv1d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.conv1(F.pad(x, (self.pad, 0))))
        y = torch.relu(self.conv2(F.pad(y, (self.pad, 0))))
        return torch.relu(y + self.short(x))


def tcn() -> nn.Module:
    blocks = nn.Sequential(TemporalBlock(4, 8, 1), TemporalBlock(8, 8, 2), TemporalBlock(8, 8, 4))
    return nn.Sequential(blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 5))


class TNet(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.features = nn.Sequential(
            nn.Conv1d(k, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 1), nn.BatchNorm1d(16), nn.ReLU()
        )
        self.fc = nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, k * k))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(torch.max(self.features(x), 2)[0])
        return y.view(-1, self.k, self.k) + torch.eye(self.k)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transform = TNet(3)
        self.features = nn.Sequential(
            nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 20, 1), nn.BatchNorm1d(20)
        )
        self.head = nn.Sequential(nn.Linear(20, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 4))

    def forward(self, points: Tensor) -> Tensor:
        x = torch.bmm(points.transpose(2, 1), self.transform(points)).transpose(2, 1)
        return F.log_softmax(self.head(self.features(x).max(2)[0]), 1)


class TwoTower(nn.Module):
    """Two inputs of different kinds and the similarity of their embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.text = nn.Embedding(30, 8), nn.Linear(8, 8)
        self.item = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, tokens: Tensor, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = F.normalize(self.text(self.words(tokens).mean(1)), dim=-1)
        b = F.normalize(self.item(features), dim=-1)
        return a, b, (a * b).sum(-1) / 0.07


TOKENS = torch.randint(0, 30, (1, 9))
SAMPLES = [
    network("lstm", Recurrent(nn.LSTM, False), TOKENS),
    network("lstm_bidirectional", Recurrent(nn.LSTM, True), TOKENS),
    network("gru", Recurrent(nn.GRU, False), TOKENS),
    network("gru_bidirectional", Recurrent(nn.GRU, True), TOKENS),
    network("lstm_last_state", LastState(), torch.randn(1, 7, 6), batches=False),
    network("tcn", tcn(), torch.randn(1, 4, 30)),
    network("pointnet", PointNet(), torch.randn(1, 3, 40)),
    network("two_tower", TwoTower(), TOKENS, torch.randn(1, 5)),
    network(
        "gru_dynamic",
        Recurrent(nn.GRU, True),
        TOKENS,
        dynamic=[torch.randint(0, 30, (2, 14))],
        further=[[torch.randint(0, 30, (1, 4))], [torch.randint(0, 30, (5, 21))]],
    ),
    network(
        "tcn_dynamic",
        tcn(),
        torch.randn(1, 4, 30),
        dynamic=[torch.randn(2, 4, 41)],
        further=[[torch.randn(1, 4, 23)], [torch.randn(4, 4, 55)]],
    ),
    network(
        "pointnet_dynamic",
        PointNet(),
        torch.randn(1, 3, 40),
        dynamic=[torch.randn(2, 3, 33)],
        further=[[torch.randn(1, 3, 17)], [torch.randn(4, 3, 64)]],
    ),
]
