"""Recurrent networks over sequences: taggers of every step, and classifiers of the whole."""

from __future__ import annotations

from torch import Tensor, nn

STEPS, FEATURES = 100, 64


class _Tagger(nn.Module):
    """Features (N, T, F) -> logits of every step (N, T, labels)."""

    def __init__(self, network: nn.RNNBase, width: int, labels: int) -> None:
        super().__init__()
        self.network, self.head = network, nn.Linear(width, labels)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.network(x)
        return self.head(output)


class _Classifier(_Tagger):
    """Features (N, T, F) -> logits of the last step (N, labels)."""

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.network(x)
        return self.head(output[:, -1])


def lstm_tagger() -> nn.Module:
    """2 layers of 128 units in both directions: 0.6 M parameters."""
    return _Tagger(nn.LSTM(FEATURES, 128, 2, batch_first=True, bidirectional=True), 256, 24)


def gru_classifier() -> nn.Module:
    """2 layers of 128 units: 0.2 M parameters."""
    return _Classifier(nn.GRU(FEATURES, 128, 2, batch_first=True), 128, 12)


def lstm_classifier() -> nn.Module:
    """2 layers of 128 units: 0.2 M parameters."""
    return _Classifier(nn.LSTM(FEATURES, 128, 2, batch_first=True), 128, 12)


def lstm_wide() -> nn.Module:
    """2 layers of 1024 units, whose weights no core has near: 15 M parameters."""
    return _Tagger(nn.LSTM(512, 1024, 2, batch_first=True), 1024, 256)


def gru_tagger() -> nn.Module:
    """2 layers of 128 units in both directions: 0.4 M parameters."""
    return _Tagger(nn.GRU(FEATURES, 128, 2, batch_first=True, bidirectional=True), 256, 24)
