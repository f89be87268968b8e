"""Training of examples/store/topics, a classifier of short texts; writes its folder.

    pip install ".[export,text]"
    python examples/train_topics.py

Needs torch, pnnx and tokenizers; topics/sentences.py makes all sentences. About two minutes on one core. All random
numbers come from one seed and torch uses one thread, so that the same versions on the same CPU write the same files.
Test sentences have words that training never shows, or wordings as well. The figures of the README are measured on the
exported files, read back by pnnx.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template

import numpy as np
import tokenizers
import torch
from pair import write_pair
from topics.sentences import LABELS, sentences
from torch import Tensor, nn

import engine

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
VOCABULARY = 1200
WIDTH = 64
BATCH = 64
MAX_TOKENS = 64
UNSEEN = 3000

CONFIG = f"""\
# Written by examples/train_topics.py.
task = "text-classification"
labels = {json.dumps(LABELS)}

[text]
max_tokens = {MAX_TOKENS}

[text-classification]
top_k = 3
"""


class Classifier(nn.Module):
    """Token ids (N, L) to scores (N, topics): embedding, two convolutions over neighbours, mean and maximum, linear.

    A residual around each convolution keeps words that carry the topic alone.
    """

    def __init__(self, tokens: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, WIDTH)
        self.first = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.second = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(2 * WIDTH, classes)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.dropout(self.embedding(input_ids).transpose(1, 2))
        x = x + torch.relu(self.first(x))
        x = x + torch.relu(self.second(x))
        scores: Tensor = self.last(self.dropout(torch.cat([x.mean(2), x.amax(2)], 1)))
        return scores


def train_tokenizer(texts: Sequence[str]) -> tokenizers.Tokenizer:
    """Return a WordPiece tokenizer of lower-case words and their parts."""
    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator(texts, vocab_size=VOCABULARY, min_frequency=2, show_progress=False)
    found = tokenizers.Tokenizer.from_str(made.to_str())
    found.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(each, found.token_to_id(each)) for each in ("[CLS]", "[SEP]")],
    )
    found.enable_truncation(MAX_TOKENS)
    return found


def batches(encoded: Sequence[tuple[list[int], int]], chance: random.Random) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of sentences with equally many tokens, as the server runs them: no token is padding."""
    by_length: dict[int, list[tuple[list[int], int]]] = {}
    for each in encoded:
        by_length.setdefault(len(each[0]), []).append(each)
    parts = []
    for items in by_length.values():
        chance.shuffle(items)
        parts += [items[at : at + BATCH] for at in range(0, len(items), BATCH)]
    chance.shuffle(parts)
    for part in parts:
        yield torch.tensor([ids for ids, _ in part]), torch.tensor([topic for _, topic in part])


def train(encoded: Sequence[tuple[list[int], int]], tokens: int, epochs: int) -> Classifier:
    torch.manual_seed(SEED)
    chance = random.Random(SEED)
    model = Classifier(tokens, len(LABELS))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    unknown = 1
    for epoch in range(epochs):
        for ids, topics in batches(encoded, chance):
            hidden = torch.rand(ids.shape) < 0.1  # one token in ten is unknown, as words of a test may be
            loss = nn.functional.cross_entropy(model(torch.where(hidden, unknown, ids)), topics, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if sys.stderr.isatty():
            print(f"\repoch {epoch + 1}/{epochs}, loss {loss.item():.3f} ", end="", file=sys.stderr, flush=True)
    return model.eval()


@torch.no_grad()
def confusion(model: nn.Module, encoded: Sequence[tuple[list[int], int]]) -> np.ndarray:
    """Return how many sentences of each topic, by row, are taken for each topic."""
    found = np.zeros((len(LABELS), len(LABELS)), np.int64)
    for ids, topics in batches(encoded, random.Random(SEED)):
        np.add.at(found, (topics.numpy(), model(ids).argmax(1).numpy()), 1)
    return found


@torch.no_grad()
def check_engine(version: Path, model: nn.Module, encoded: Sequence[tuple[list[int], int]]) -> float:
    """Return the largest difference of a score between engine and torch on some sentences."""
    session = engine.Session(engine.load(version / "model.pnnx.param", version / "model.pnnx.bin"))
    ids = [np.array([each]) for each, _ in encoded[:20]]
    return max(float(np.abs(session.run([x])[0] - model(torch.from_numpy(x)).numpy()).max()) for x in ids)


def write_card(folder: Path, *, parameters: int, trained: int, figures: dict[str, np.ndarray]) -> None:
    rows = [
        f"| {kind} | {table.sum():,} | **{table.trace() / table.sum():.1%}** | "
        + " | ".join(f"{line[at] / line.sum():.1%}" for at, line in enumerate(table))
        + " |"
        for kind, table in figures.items()
    ]
    template = Path(__file__).with_name("train_topics_card.md").read_text(encoding="utf-8")
    card = Template(template).substitute(
        parameters=f"{parameters:,}",
        trained=f"{trained:,}",
        labels=", ".join(LABELS[:-1]) + f" and {LABELS[-1]}",
        header=" | ".join(LABELS),
        ruler="---|" * (3 + len(LABELS)),
        rows="\n".join(rows),
        classes=len(LABELS),
        torch=torch.__version__.partition("+")[0],
        seed=SEED,
    )
    folder.joinpath("README.md").write_text(card, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Train the topics model and write its folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "examples/store/topics", help="folder to write")
    parser.add_argument("--sentences", type=int, default=12000, help="to make and train on")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    known = [*sentences(SEED, options.sentences)]
    tokenizer = train_tokenizer([text for text, _ in known])

    def encode(found: Iterable[tuple[str, int]]) -> list[tuple[list[int], int]]:
        return [(tokenizer.encode(text).ids, topic) for text, topic in found]

    encoded = encode(known)
    tested = encode(sentences(SEED + 1, UNSEEN, has_new_words=True))
    reworded = encode(sentences(SEED + 2, UNSEEN, has_new_words=True, has_new_wording=True))
    model = train(encoded, tokenizer.get_vocab_size(), options.epochs)
    version = options.out / "1"
    # A second size makes numbers of texts and tokens open.
    ids = torch.tensor([encoded[0][0]])
    read_back = write_pair(model, version, ids, torch.cat([ids, ids, ids[:, :2]], 1).repeat(3, 1))
    tokenizer.save(str(version / "tokenizer.json"), pretty=False)
    figures = {"new words": confusion(read_back, tested), "new wordings": confusion(read_back, reworded)}
    options.out.joinpath("config.toml").write_text(CONFIG, encoding="utf-8")
    parameters = sum(weight.numel() for weight in model.parameters())
    write_card(options.out, parameters=parameters, trained=options.sentences, figures=figures)
    for kind, table in figures.items():
        print(f"accuracy {table.trace() / table.sum():.4f} on {kind}")
    print(f"engine and torch differ by {check_engine(version, read_back, tested):.1e} at most")


if __name__ == "__main__":
    main()
