"""Verbs of the command line with their flags and examples.

Each verb is implemented in the module of its name. This module is read before the number of BLAS threads is set, so
it imports neither numpy nor anything that does.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.cli.arguments.options import COMPUTING, add_config, add_setting
from app.settings import SECRETS, SECTIONS, Settings

RIVALS: Final = ("onnxruntime", "openvino", "ncnn", "onnxruntime-int8", "openvino-int8")
GRAPH_FORMATS: Final = ("text", "json", "svg", "dot", "mermaid", "param")

_MODEL: Final = "name of a model in the store, or path of a .pnnx.param or .onnx file, its folder or a bundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Verb of the command line.

    Args:
        summary: description of at most half a sentence.
        examples: example calls and further notes.
        configure: function that adds its flags to a parser.
        settings: server settings that are also flags of the verb.
        is_concurrent: whether its runs go on side by side, so that each gets its share of the cores.
        has_json: whether it can print its result as JSON.
        common: those of the settings that are listed first.
    """

    summary: str
    examples: str
    configure: Callable[[ArgumentParser], None]
    settings: tuple[str, ...]
    is_concurrent: bool = False
    has_json: bool = False
    common: tuple[str, ...] = ()

    def add_to(self, parser: ArgumentParser) -> None:
        """Add all flags of the verb to a parser."""
        self.configure(parser)
        if self.has_json:
            parser.add_argument("--json", action="store_true", help="print the result as JSON")
        add_config(parser)
        groups = {"Most used": self.common} if self.common else {}
        for section in SECTIONS:
            names = tuple(name for name in section.model_fields if name in self.settings and name not in self.common)
            groups[(section.__doc__ or "").rstrip(".")] = names
        for title, names in groups.items():
            group = parser.add_argument_group(title) if names else parser
            for name in names:
                add_setting(group, name)


def _run(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--input",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]FILE",
        help=".npy or .npz file; files without NAME follow the order of the inputs",
    )
    parser.add_argument(
        "--image",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="picture or folder of pictures; several form a batch",
    )
    parser.add_argument(
        "--sound", action="extend", nargs="+", default=[], metavar="FILE", help="sound or folder of sounds"
    )
    parser.add_argument("--output", metavar="FILE", help="save all outputs in this .npz file")
    parser.add_argument("--draw", metavar="FILE", help="save the picture with its predictions as this .png file")
    parser.add_argument("--top-k", type=int, metavar="CLASSES", help="number of classes returned, highest score first")


def _graph(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--format",
        choices=GRAPH_FORMATS,
        default="text",
        help="param is the model's own text file. Default: text.",
    )
    parser.add_argument("--profile", action="store_true", help="run the model on zeros and add operator times")
    parser.add_argument(
        "--explain", action="store_true", help="show step by step how the graph was read, ordered and resolved"
    )
    parser.add_argument("--output", metavar="FILE", help="write to this file instead of stdout")


def _report(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    _shape(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of stdout")


def _shape(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        type=shape,
        action="append",
        default=[],
        metavar="SHAPE",
        help="shape of an input with dynamic sizes, such as 1,3,224,224; once for each input",
    )


def _check(parser: ArgumentParser) -> None:
    parser.add_argument("model", nargs="+", metavar="MODEL", help=_MODEL)


def _compare(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument("--reference", metavar="FILE", required=True, help=".npz file of recorded values")
    parser.add_argument(
        "--rtol",
        type=float,
        metavar="SHARE",
        help="allowed error relative to the largest magnitude. Default: 1e-4, more for half precision.",
    )
    parser.add_argument(
        "--atol", type=float, default=1e-6, metavar="ERROR", help="allowed absolute error. Default: 1e-6."
    )


def _bench(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument("--batch", type=positive, metavar="N", help="batch size. Default: the exported one.")
    _shape(parser)
    parser.add_argument("--seconds", type=duration, default=2.0, metavar="S", help="seconds per engine. Default: 2.")
    parser.add_argument("--against", default="", metavar="ENGINES", help=f"comma-separated, of {', '.join(RIVALS)}")
    parser.add_argument("--plot", metavar="FILE", help="show times as bars, and draw them to this .svg or .png file")
    for kind, names in (("onnx", "onnxruntime and openvino"), ("ncnn", "ncnn (.ncnn.param)")):
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"file for {names}. Default: next to the model.")


def _tuning(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--batch", nargs="+", type=positive, default=[1, 4], metavar="N", help="batch sizes. Default: 1 and 4."
    )
    parser.add_argument(
        "--vary",
        nargs="+",
        default=[],
        choices=("winograd", "passes", "backend", "precision"),
        metavar="WHAT",
        help="options to vary: winograd, passes (all or none), backend, precision (float32 or bf16)",
    )
    _shape(parser)
    parser.add_argument("--seconds", type=duration, default=1.0, metavar="S", help="seconds per candidate. Default: 1.")


def _compile(parser: ArgumentParser) -> None:
    parser.add_argument("model", nargs="*", metavar="MODEL", help=_MODEL)
    parser.add_argument("--all", action="store_true", help="all models of the store")
    parser.add_argument(
        "--batch", nargs="+", type=positive, default=[None], metavar="N", help="batch sizes. Default: the exported one."
    )
    _shape(parser)
    parser.add_argument("--force", action="store_true", help="compile again and replace the cache entry or the bundle")
    parser.add_argument(
        "--bundle",
        metavar="DIR",
        help="write model and compiled programs to this folder, to run elsewhere without a compiler",
    )
    parser.add_argument(
        "--oci", action="store_true", help="write the bundle as an OCI image layout, like --bundle oci:DIR"
    )
    parser.add_argument(
        "--target",
        choices=("avx512", "avx2", "sse", "neon"),
        help="instruction set of the bundle. Default: for machines like this one.",
    )


def _export(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="FILE.py[:NAME], package.module:NAME, a TorchScript file or FILE.onnx"
    )
    for flag, text in (
        ("--shape", "shape of an input, such as 1,3,224,224; once for each input"),
        ("--dtype", "dtype of the inputs; once for all, or once for each. Default: float32."),
        ("--shape2", "second shape of each input; dimensions that differ become dynamic"),
    ):
        parser.add_argument(flag, action="append", default=[], metavar=flag[2:7].upper(), help=text)
    parser.add_argument("--name", help="name of the model in the store. Default: name of the class or file.")
    parser.add_argument(
        "--output", type=folder, metavar="DIR", help="write the files to this folder instead of the store"
    )
    parser.add_argument("--reference", metavar="FILE", help="also record PyTorch's values for 'pnnx-serve compare'")
    parser.add_argument(
        "--opt-level",
        type=int,
        choices=(0, 1, 2),
        default=2,
        help="level of graph simplification. Default: 2; use 1 if an operator is lost.",
    )
    parser.add_argument(
        "--module-operator",
        action="append",
        default=[],
        metavar="CLASS",
        help="keep this class (package.module.Class) as one operator, to be defined by a plugin",
    )
    parser.add_argument(
        "--rtol", type=float, metavar="SHARE", help="allowed error relative to an output's largest magnitude"
    )


def _export_onnx(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument("output", metavar="OUT.onnx", help="file to write")
    parser.add_argument("--any-batch", action="store_true", help="let the file accept any batch size")
    parser.add_argument(
        "--round-results",
        action="store_true",
        help="round the results of int8 convolutions, too: other runtimes compute the file faster, but less exactly",
    )


def _quantize(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--precision",
        choices=("int8", "bf16", "auto", "int8-weights", "int4-weights"),
        default="int8",
        help="int8 computes with bytes and needs samples; bf16 multiplies bfloat16, and auto chooses float32, bf16 or "
        "int8 for each layer; int8-weights and int4-weights store the weights of linear layers with 8 or 4 bits. "
        "Default: int8.",
    )
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument(
        "--samples",
        metavar="FILES",
        help="folder of pictures or of a folder of pictures for each class; .npz file with an array of items for each "
        "input, and perhaps an array 'labels'; or .npy file for the only input",
    )
    sources.add_argument(
        "--recorded",
        type=positive,
        metavar="N",
        help="the last N requests that a server with --record-requests recorded for the version or one made from it",
    )
    parser.add_argument(
        "--keep",
        type=share,
        default=0.999,
        metavar="SHARE",
        help="least share of the outputs' energy to keep, such as 99.9%% or 0.999. Default: 99.9%%.",
    )
    parser.add_argument(
        "--output", type=folder, metavar="DIR", help="write the files to this folder instead of the store"
    )


def _import(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="folder of Hugging Face, .mar archive, or .onnx file",
    )
    parser.add_argument("--name", metavar="NAME", help="name of the model in the store; default: that of the source")
    parser.add_argument("--file", metavar="NAME", help="ONNX file in the folder, if it is not model.onnx")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="SHAPE",
        help="shape of an input of a PyTorch model in an archive, once for each input",
    )
    parser.add_argument("--run-code", action="store_true", help="run the Python code of a model in an archive")


def _cache(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "clear"), metavar="ACTION", help="list or clear")


def _completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")


def _deploy(parser: ArgumentParser) -> None:
    parser.add_argument("engine", choices=("ray",), metavar="ENGINE", help="ray: an application of Ray Serve.")
    parser.add_argument(
        "--address",
        metavar="ADDRESS",
        help="address of a running cluster, or auto. Default: one on this machine.",
    )
    parser.add_argument("--name", default="pnnx-serve", help="name of the application. Default: pnnx-serve.")
    parser.add_argument("--replicas", type=positive, metavar="N", help="number of replicas. Default: 1.")
    parser.add_argument("--cpus", type=float, metavar="CORES", help="cores per replica. Default: 1.")
    parser.add_argument(
        "--models-per-replica",
        type=positive,
        metavar="N",
        help="maximum number of models per replica, loaded on demand. Default: all of the store.",
    )


VERBS: Final = {
    "serve": Verb(
        summary="serve the models of a store over HTTP",
        examples="""  pnnx-serve serve --store model_store
  pnnx-serve serve --store /models --host 0.0.0.0 --port 80 --threads 4
""",
        configure=lambda parser: None,
        settings=tuple(name for name in Settings.model_fields if name not in SECRETS),
        is_concurrent=True,
        common=("store", "host", "port", "workers", "threads"),
    ),
    "deploy": Verb(
        summary="serve the models of a store with Ray, on many machines",
        examples="""  pnnx-serve deploy ray --store model_store
  pnnx-serve deploy ray --store s3://bucket/models --address auto --replicas 4 --cpus 2

Needs the extra [ray]. More options, such as replicas of single models, go into Ray's config file: docs/scaling.md.
""",
        configure=_deploy,
        settings=tuple(name for name in Settings.model_fields if name not in (*SECRETS, "workers", "grpc_port")),
    ),
    "models": Verb(
        summary="list the models of a store",
        examples="""  pnnx-serve models
  pnnx-serve models --store /models
""",
        configure=lambda parser: None,
        settings=("store",),
        has_json=True,
    ),
    "run": Verb(
        summary="run a model once, without a server",
        examples="""  pnnx-serve run digits --image seven.png
  pnnx-serve run faces --image party.jpg --draw found.png
  pnnx-serve run keywords --sound stop.flac
  pnnx-serve run resnet18.pnnx.param --input x.npy --output y.npz
  pnnx-serve run two_inputs.pnnx.param --input in1=b.npy --input in0=a.npy
""",
        configure=_run,
        settings=("store", "plugins", *COMPUTING),
        has_json=True,
    ),
    "graph": Verb(
        summary="show the graph of a model: operators, shapes, weights, times",
        examples="""  pnnx-serve graph digits
  pnnx-serve graph digits --profile
  pnnx-serve graph digits --explain
  pnnx-serve graph resnet18.pnnx.param --format svg --output resnet18.svg
""",
        configure=_graph,
        settings=("store", "plugins", *COMPUTING),
    ),
    "report": Verb(
        summary="write a model and a measured run as one HTML file",
        examples="""  pnnx-serve report digits -o digits.html
  pnnx-serve report resnet18.pnnx.param -o resnet18.html

The file works without a server or network: graph with times, kernels, inputs, outputs, machine.
""",
        configure=_report,
        settings=("store", "plugins", *COMPUTING),
    ),
    "check": Verb(
        summary="report every problem that keeps models from being served",
        examples="""  pnnx-serve check digits
  pnnx-serve check exported/*.pnnx.param && echo all of them
  pnnx-serve check --strict digits
""",
        configure=_check,
        settings=("store", "plugins", "strict"),
        has_json=True,
    ),
    "compare": Verb(
        summary="find the first operator whose values differ from a recording",
        examples="""  pnnx-serve compare resnet18 --reference ref.npz
  pnnx-serve compare resnet18.pnnx.param --reference ref.npz --rtol 1e-3

ref.npz holds the inputs in_0, in_1, ... and any recorded values: outputs out_0, out_1, ..., and operand/NAME for
operands of the graph. 'pnnx-serve export --reference' writes such a file.
""",
        configure=_compare,
        settings=("store", "plugins", *COMPUTING),
        has_json=True,
    ),
    "bench": Verb(
        summary="measure a model: latency, throughput, every kernel",
        examples="""  pnnx-serve bench digits
  pnnx-serve bench superres --shape 1,1,64,64
  pnnx-serve bench resnet18.pnnx.param --threads 1 --batch 8 --seconds 10
  pnnx-serve bench resnet18.pnnx.param --against onnxruntime,ncnn --onnx resnet18.onnx
  pnnx-serve bench digits --plot digits.svg

Inputs are random. Outputs of every engine are checked against the reference before anything is timed. The peak is that
of fused multiply-adds on registers, measured on this processor; Winograd convolutions count the operations they save,
so their share of peak may exceed 100 %.
""",
        configure=_bench,
        settings=("store", "plugins", *COMPUTING),
        has_json=True,
    ),
    "tune": Verb(
        summary="measure a model with different options",
        examples="""  pnnx-serve tune digits
  pnnx-serve tune digits --batch 1 2 4 8 --vary winograd backend
  pnnx-serve tune resnet18.pnnx.param --threads 4 --vary winograd --seconds 3
  pnnx-serve tune superres --shape 1,1,64,64

Threads are 1, 2, 4 and so on, up to --threads. Every candidate is checked against the reference first; then they run in
turn, so that other load on the machine affects them equally. The report shows the config.toml lines and the settings
for the lowest latency and the highest throughput. The console does the same, with a chart.
""",
        configure=_tuning,
        settings=("store", "plugins", "threads", "cache", "cache_dir"),
        has_json=True,
    ),
    "calibrate": Verb(
        summary="measure this machine, to choose kernels for it",
        examples="""  pnnx-serve calibrate
  pnnx-serve calibrate --cache-dir /var/cache/pnnx-serve

Takes a second; run it on an idle machine. Without it, kernels are chosen by the processor's micro-architecture, or, if
that is unknown, by cache sizes and vector width. The result is kept in the cache folder; models are compiled again at
the next start.
""",
        configure=lambda parser: None,
        settings=("cache_dir",),
        has_json=True,
    ),
    "cache": Verb(
        summary="list or clear what has been compiled",
        examples="""  pnnx-serve cache list
  pnnx-serve cache clear
  pnnx-serve cache list --cache-dir /var/cache/pnnx-serve --json

'clear' removes compiled programs; the next start compiles them again. Measurements of the machine stay.
""",
        configure=_cache,
        settings=("cache_dir",),
        has_json=True,
    ),
    "completion": Verb(
        summary="print a script that completes verbs and flags in a shell",
        examples="""  pnnx-serve completion bash >> ~/.bashrc
  pnnx-serve completion zsh > ~/.zfunc/_pnnx-serve
  pnnx-serve completion fish > ~/.config/fish/completions/pnnx-serve.fish
""",
        configure=_completion,
        settings=(),
    ),
    "compile": Verb(
        summary="compile models ahead of time, for later starts",
        examples="""  pnnx-serve compile digits
  pnnx-serve compile resnet18.pnnx.param --batch 1 8
  pnnx-serve compile superres --shape 1,1,64,64
  pnnx-serve compile --all --store /models --cache-dir /var/cache/pnnx-serve
  pnnx-serve compile digits --bundle digits.bundle && pnnx-serve run digits.bundle --image seven.png
  pnnx-serve compile digits --batch 1 8 --bundle oci:digits.oci --target avx2

All versions of a stored model are compiled. --winograd and --passes-off must be the server's; the number of threads may
differ. A bundle holds the newest version. It contains machine code: run only bundles from a source that you trust.
""",
        configure=_compile,
        settings=("store", "plugins", "threads", "winograd", "passes_off", "cache_dir", "cache_max_bytes"),
        has_json=True,
    ),
    "export": Verb(
        summary="turn a PyTorch or ONNX model into a checked PNNX model",
        examples="""  pnnx-serve export model.py:Net --shape 1,3,224,224
  pnnx-serve export net.pt --shape 1,3,224,224 --shape2 4,3,320,320 --name segmenter
  pnnx-serve export model.py:make_encoder --shape 1,77 --dtype int64 --shape 1,77,512 --dtype float32
  pnnx-serve export model.py --shape 1,16 --output exported --reference ref.npz
  pnnx-serve export model.onnx --name detector

SOURCE is a class, function or module in a Python file (FILE.py:NAME; NAME may be left out if there is only one model)
or in an installed package (package.module:NAME), a file written by torch.jit.save, or an ONNX file. Without --shape an
ONNX file is read as the server reads it (extra 'onnx'); with --shape PNNX's converter reads it and onnxruntime checks
the result. Importing a Python file runs it. Without --output the result becomes the next version of a model in
the store, provided that its outputs match the original model's.
""",
        configure=_export,
        settings=("store", "plugins"),
    ),
    "export-onnx": Verb(
        summary="write a model as an ONNX file for other runtimes",
        examples="""  pnnx-serve export-onnx digits digits.onnx
  pnnx-serve export-onnx resnet18.pnnx.param resnet18.onnx --any-batch

A model that was quantised becomes a file with QuantizeLinear and DequantizeLinear. If ONNX cannot express an operator,
all such operators are listed, and nothing is written. Needs the extra [onnx].
""",
        configure=_export_onnx,
        settings=("store", "plugins"),
    ),
    "import": Verb(
        summary="put a model of another tool into the store, configured",
        examples="""  pnnx-serve import all-MiniLM-L6-v2/ --name minilm
  pnnx-serve import all-MiniLM-L6-v2/ --file model_quantized.onnx
  pnnx-serve import densenet161.mar --run-code
  pnnx-serve import yolov8n.onnx

Labels, sizes, means, pooling and limits are read from the files of the source. PyTorch exports weights without an ONNX
file. The model becomes the next version of its name in the store; a config.toml that is there stays as it is.
""",
        configure=_import,
        settings=("store", "plugins"),
    ),
    "quantize": Verb(
        summary="compute layers in int8 or bf16, or with small weights",
        examples="""  pnnx-serve quantize digits --samples pictures/
  pnnx-serve quantize gpt --precision int4-weights
  pnnx-serve quantize whisper --precision auto --recorded 100
  pnnx-serve quantize digits --recorded 100
  pnnx-serve quantize resnet18 --samples calibration.npz --keep 99.5%
  pnnx-serve quantize resnet18.pnnx.param --samples calibration.npz --output quantised

Pictures are converted as the model's config.toml says. 50 to 200 samples are usual. Every layer is timed in float32 and
int8 on this machine, and its error is measured; layers that are not faster, or lose too much, stay in float32. With
labels the accuracy of both networks is measured. The newest version that is not quantised is taken. Without --output
the result becomes the next version of the model in the store.
""",
        configure=_quantize,
        settings=("store", "plugins", "threads", "cache_dir", "record_dir"),
        has_json=True,
    ),
}


def positive(text: str) -> int:
    """Return an integer of at least 1.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"found '{text}', expected a positive whole number")
    return int(text)


def folder(text: str) -> str:
    """Return a path as it is.

    Raises:
        ArgumentTypeError: the text is empty, as an unset variable of a shell is.
    """
    if not text:
        raise argparse.ArgumentTypeError("found '', expected a folder")
    return text


def share(text: str) -> float:
    """Return a share between 0 and 1, written as a number or in per cent.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"found '{text}', expected a share such as 99.9% or 0.999")
    return value


def duration(text: str) -> float:
    """Return a positive number of seconds.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}', expected a positive number of seconds")
    return seconds


def shape(text: str) -> tuple[int, ...]:
    """Return a shape from comma-separated sizes, ``1,3,224,224``.

    Raises:
        ArgumentTypeError: the text is not a shape.
    """
    sizes = [size.strip() for size in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise argparse.ArgumentTypeError(f"found '{text}', expected sizes by comma, such as 1,3,224,224")
    return tuple(map(int, sizes))
