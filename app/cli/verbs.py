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

RIVALS: Final = ("onnxruntime", "openvino", "ncnn")
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
    """

    summary: str
    examples: str
    configure: Callable[[ArgumentParser], None]
    settings: tuple[str, ...]
    is_concurrent: bool = False

    def add_to(self, parser: ArgumentParser) -> None:
        """Add all flags of the verb to a parser."""
        self.configure(parser)
        add_config(parser)
        for section in SECTIONS:
            names = [name for name in section.model_fields if name in self.settings]
            group = parser.add_argument_group((section.__doc__ or "").rstrip(".")) if names else parser
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
        help=".npy or .npz file; without a name the inputs stand in the model's order",
    )
    parser.add_argument(
        "--image",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="picture, or folder of them; several are a batch",
    )
    parser.add_argument("--output", metavar="FILE", help="save all outputs in this .npz file")
    parser.add_argument("--draw", metavar="FILE", help="save the picture with what was found in it as this .png file")
    parser.add_argument("--top-k", type=int, metavar="CLASSES", help="how many classes a classifier names")


def _graph(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--format", choices=GRAPH_FORMATS, default="text", help="param is the model's own file. Default: text."
    )
    parser.add_argument("--profile", action="store_true", help="run the model on zeros and add the operators' times")
    parser.add_argument(
        "--explain", action="store_true", help="tell step by step how the graph was read, ordered and understood"
    )
    parser.add_argument("--output", metavar="FILE", help="write to this file instead of stdout")


def _report(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    _shape(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of stdout")


def _tune(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tune",
        action="store_true",
        help="compile anew, measure the best candidates for each kernel on this machine, and keep which is fastest",
    )


def _shape(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        type=shape,
        action="append",
        default=[],
        metavar="SHAPE",
        help="shape of an input, such as 1,3,224,224; once for each input, where the model leaves sizes open",
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
        help="allowed error as a share of the largest magnitude of a value. Default: 1e-4, for half precision more.",
    )
    parser.add_argument(
        "--atol", type=float, default=1e-6, metavar="ERROR", help="allowed absolute error. Default: 1e-6."
    )


def _bench(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument("--batch", type=positive, metavar="N", help="batch size. Default: the exported one.")
    _shape(parser)
    _tune(parser)
    parser.add_argument("--seconds", type=duration, default=2.0, metavar="S", help="for each engine. Default: 2.")
    parser.add_argument("--against", default="", metavar="ENGINES", help=f"by comma, of {', '.join(RIVALS)}")
    parser.add_argument("--plot", metavar="FILE", help="show times as bars, and draw them into this .svg or .png")
    for kind, names in (("onnx", "onnxruntime and openvino"), ("ncnn", "ncnn (.ncnn.param)")):
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"the network for {names}. Default: beside the model.")


def _tuning(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--batch", nargs="+", type=positive, default=[1, 4], metavar="N", help="batch sizes. Default: 1 and 4."
    )
    parser.add_argument(
        "--vary",
        nargs="+",
        default=[],
        choices=("winograd", "passes", "backend", "kernels"),
        metavar="WHAT",
        help="what else is varied, of winograd, passes (all or none), backend, kernels (estimated or measured)",
    )
    _shape(parser)
    parser.add_argument("--seconds", type=duration, default=1.0, metavar="S", help="for each candidate. Default: 1.")


def _compile(parser: ArgumentParser) -> None:
    parser.add_argument("model", nargs="*", metavar="MODEL", help=_MODEL)
    parser.add_argument("--all", action="store_true", help="every model of the store")
    parser.add_argument(
        "--batch", nargs="+", type=positive, default=[None], metavar="N", help="batch sizes. Default: the exported one."
    )
    _shape(parser)
    _tune(parser)
    parser.add_argument(
        "--force", action="store_true", help="compile what is in the cache as well, and replace it, or the bundle"
    )
    parser.add_argument(
        "--bundle",
        metavar="DIR",
        help="put the model and what is compiled of it into this folder, to be run elsewhere without a compiler",
    )
    parser.add_argument(
        "--oci", action="store_true", help="make the folder an OCI image layout, as --bundle oci:DIR does"
    )
    parser.add_argument(
        "--target",
        choices=("avx512", "avx2", "sse", "neon"),
        help="a bundle for every machine of this level. Default: for machines such as this one.",
    )


def _export(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="FILE.py[:NAME], package.module:NAME, a TorchScript file or FILE.onnx"
    )
    for flag, text in (
        ("--shape", "shape of an input, such as 1,3,224,224; once for each input"),
        ("--dtype", "dtype of the inputs; once for all, or once for each. Default: float32."),
        ("--shape2", "another shape of each input: dimensions that differ become dynamic"),
    ):
        parser.add_argument(flag, action="append", default=[], metavar=flag[2:7].upper(), help=text)
    parser.add_argument("--name", help="name of the model in the store. Default: that of the class or file.")
    parser.add_argument("--output", metavar="DIR", help="write the pair into this folder, not into the store")
    parser.add_argument("--reference", metavar="FILE", help="also record PyTorch's values, for 'pnnx-serve compare'")
    parser.add_argument(
        "--opt-level",
        type=int,
        choices=(0, 1, 2),
        default=2,
        help="simplification. Default: 2; 1 keeps what it loses at times.",
    )
    parser.add_argument(
        "--module-operator",
        action="append",
        default=[],
        metavar="CLASS",
        help="keep this class (package.module.Class) as one operator; a plugin must know it",
    )
    parser.add_argument(
        "--rtol", type=float, metavar="SHARE", help="allowed error as a share of an output's largest magnitude"
    )


def _deploy(parser: ArgumentParser) -> None:
    parser.add_argument("engine", choices=("ray",), metavar="ENGINE", help="ray: an application of Ray Serve.")
    parser.add_argument(
        "--address", metavar="ADDRESS", help="of a cluster that runs, or auto. Default: one of this machine alone."
    )
    parser.add_argument("--name", default="pnnx-serve", help="of the application. Default: pnnx-serve.")
    parser.add_argument("--replicas", type=positive, metavar="N", help="as many replicas. Default: 1.")
    parser.add_argument("--cpus", type=float, metavar="CORES", help="cores of a replica. Default: 1.")
    parser.add_argument(
        "--models-per-replica",
        type=positive,
        metavar="N",
        help="most models of a replica, which loads those it is asked for. Default: all of the store.",
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
    ),
    "deploy": Verb(
        summary="serve the models of a store with Ray, on many machines",
        examples="""  pnnx-serve deploy ray --store model_store
  pnnx-serve deploy ray --store s3://bucket/models --address auto --replicas 4 --cpus 2

It needs the extra [ray]. All that can be said, replicas of single models among it, is for Ray's own config file:
docs/scaling.md.
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
    ),
    "run": Verb(
        summary="run a model once, without a server",
        examples="""  pnnx-serve run digits --image seven.png
  pnnx-serve run faces --image party.jpg --draw found.png
  pnnx-serve run resnet18.pnnx.param --input x.npy --output y.npz
  pnnx-serve run two_inputs.pnnx.param --input in1=b.npy --input in0=a.npy
""",
        configure=_run,
        settings=("store", "plugins", *COMPUTING),
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
        summary="write a model and a run of it into one HTML file",
        examples="""  pnnx-serve report digits -o digits.html
  pnnx-serve report resnet18.pnnx.param -o resnet18.html

The file needs no server and loads nothing: graph with times, kernels, inputs, outputs, machine.
""",
        configure=_report,
        settings=("store", "plugins", *COMPUTING),
    ),
    "check": Verb(
        summary="say whether models can be served, and if not, every reason",
        examples="""  pnnx-serve check digits
  pnnx-serve check exported/*.pnnx.param && echo all of them
  pnnx-serve check --strict digits
""",
        configure=_check,
        settings=("store", "plugins", "strict"),
    ),
    "compare": Verb(
        summary="find the operator where a model's numbers leave a reference",
        examples="""  pnnx-serve compare resnet18 --reference ref.npz
  pnnx-serve compare resnet18.pnnx.param --reference ref.npz --rtol 1e-3

ref.npz holds the inputs in_0, in_1, ... and whatever else was recorded: final outputs out_0, out_1, ..., and
operand/NAME for the operands of the graph. 'pnnx-serve export --reference' writes such a file.
""",
        configure=_compare,
        settings=("store", "plugins", *COMPUTING),
    ),
    "bench": Verb(
        summary="measure a model: latency, throughput, every kernel",
        examples="""  pnnx-serve bench digits
  pnnx-serve bench superres --shape 1,1,64,64
  pnnx-serve bench resnet18.pnnx.param --threads 1 --batch 8 --seconds 10
  pnnx-serve bench resnet18.pnnx.param --against onnxruntime,ncnn --onnx resnet18.onnx
  pnnx-serve bench digits --plot digits.svg

Inputs are random. The answer is held against the reference before anything is timed, and so is that of every engine
named by --against. The share of peak is of fused multiply-adds on registers, measured on this processor; Winograd
convolutions count the operations they save, so theirs may exceed 100 %.
""",
        configure=_bench,
        settings=("store", "plugins", *COMPUTING),
    ),
    "tune": Verb(
        summary="measure ways to run a model against each other",
        examples="""  pnnx-serve tune digits
  pnnx-serve tune digits --batch 1 2 4 8 --vary winograd backend
  pnnx-serve tune resnet18.pnnx.param --threads 4 --vary kernels --seconds 3
  pnnx-serve tune superres --shape 1,1,64,64

Threads are 1, 2, 4 and so on, up to --threads. Every candidate is held against the reference first; then all run in
turn, so that whatever else the machine does meets them alike. What wins is told as the lines of the model's config.toml
and the settings that make it so. The console has the same, with a chart.
""",
        configure=_tuning,
        settings=("store", "plugins", "threads", "cache", "cache_dir"),
    ),
    "calibrate": Verb(
        summary="measure this machine and choose kernels for it",
        examples="""  pnnx-serve calibrate
  pnnx-serve calibrate --cache-dir /var/cache/pnnx-serve

Takes a second, on a machine where nothing else runs. Without it kernels are chosen by the processor's
micro-architecture, or for one that is not known by its caches and the width of its vectors. What is found is kept in
the cache's folder, for every later start; what was compiled before is compiled again.
""",
        configure=lambda parser: None,
        settings=("cache_dir",),
    ),
    "compile": Verb(
        summary="compile models ahead of time, for later starts",
        examples="""  pnnx-serve compile digits
  pnnx-serve compile resnet18.pnnx.param --batch 1 8
  pnnx-serve compile superres --shape 1,1,64,64
  pnnx-serve compile resnet18 --tune
  pnnx-serve compile --all --store /models --cache-dir /var/cache/pnnx-serve
  pnnx-serve compile digits --bundle digits.bundle && pnnx-serve run digits.bundle --image seven.png
  pnnx-serve compile digits --batch 1 8 --bundle oci:digits.oci --target avx2

All versions of a model of the store are compiled. The settings that decide what is compiled (--winograd, --passes-off)
must be those of the server that is to find it; the number of threads may differ. A bundle is of the newest version. It
holds machine code: whoever runs it trusts who made it, as with any program.
""",
        configure=_compile,
        settings=("store", "plugins", "threads", "winograd", "passes_off", "cache_dir", "cache_max_bytes"),
    ),
    "export": Verb(
        summary="turn a PyTorch or ONNX model into a checked PNNX pair",
        examples="""  pnnx-serve export model.py:Net --shape 1,3,224,224
  pnnx-serve export net.pt --shape 1,3,224,224 --shape2 4,3,320,320 --name segmenter
  pnnx-serve export model.py:make_encoder --shape 1,77 --dtype int64 --shape 1,77,512 --dtype float32
  pnnx-serve export model.py --shape 1,16 --output exported --reference ref.npz
  pnnx-serve export model.onnx --name detector

SOURCE is a Python file and a class, function or module in it (FILE.py:NAME; without a name it must have just one
model), the same in an installed package (package.module:NAME), a file written by torch.jit.save, or an ONNX file. That
is, without --shape, read as the server reads it (extra 'onnx'), and with it by PNNX's converter and held
against onnxruntime. Importing a Python file runs it. Without --output the pair becomes the next version of a
model in the store, but only if it gives the model's own answers.
""",
        configure=_export,
        settings=("store", "plugins"),
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
