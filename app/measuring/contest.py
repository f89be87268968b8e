"""Contest of engines: each answer is checked before it is timed.

A library is imported when its engine is created; none of them is a dependency of this package.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

ROUNDS: Final = 10
# Time over which the CPU time of the process tells whether a thread computes, and the longest wait for that.
_LOOK_S: Final = 0.004
_MOST_IDLING_S: Final = 0.2
Answer = TypeVar("Answer")
Array: TypeAlias = NDArray[Any]
Run: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]
# Winograd in float32 stays within 1e-4 in deep networks; unrequested bfloat16 would be at 1e-2.
ALLOWED_SHARE: Final = 1e-3
# Two quantisers round to different bytes, so their answers differ visibly; another network differs more.
ALLOWED_SHARE_OF_INT8: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Run times in seconds: fastest, median and p99."""

    least_s: float
    median_s: float
    p99_s: float
    runs: int


def take_turns(
    engines: Mapping[str, Callable[[], object]], seconds: float, report: Callable[[int, int], None]
) -> dict[str, Times]:
    """Run every engine for a total of ``seconds``, a tenth of it in each round.

    Taking turns spreads disturbances evenly over all engines. A turn begins when the threads of the others sleep.

    Args:
        report: called with the number of the round and the number of rounds.
    """
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for number, name in enumerate(turns(list(engines), ROUNDS)):
        report(number // len(engines), ROUNDS)
        wait_until_idle()
        spent[name] += turn(engines[name], seconds / ROUNDS)[0]
    return {name: summary(times) for name, times in spent.items()}


def wait_until_idle() -> None:
    """Wait until no thread of this process computes: those of onnxruntime spin for 30 ms after a run."""
    end = time.monotonic() + _MOST_IDLING_S
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(_LOOK_S)
        if time.process_time() - before < _LOOK_S / 4:
            return


def turns(engines: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield engines once per round, each round beginning with the next one, so that their order varies."""
    for index in range(rounds if engines else 0):
        first = index % len(engines)
        yield from (*engines[first:], *engines[:first])


def turn(run: Callable[[], Answer], seconds: float, least: int = 1) -> tuple[list[float], Answer]:
    """Run for ``seconds`` and at least ``least`` times; return the times in seconds and the last answer.

    The first run, which finds other engines' data in the caches, is not counted.
    """
    answer, clock = run(), time.perf_counter
    times: list[float] = []
    end = clock() + seconds
    while len(times) < least or clock() < end:
        start = clock()
        answer = run()
        times.append(clock() - start)
    return times, answer


def summary(times: Sequence[float]) -> Times:
    """Return the statistics of at least one time."""
    ordered = sorted(times)
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.5, 0.99))
    median, p99 = (ordered[rank] for rank in ranks)
    return Times(least_s=ordered[0], median_s=median, p99_s=p99, runs=len(ordered))


def fastest_kernels(profiles: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the kernels of several profiled runs, each with its least time."""
    return [
        {**each, "time_us": min(profile[place]["time_us"] for profile in profiles)}
        for place, each in enumerate(profiles[0])
    ]


class RivalError(Exception):
    """An engine cannot take part; the message gives the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """An engine.

    Args:
        module, distribution: names for ``import`` and for ``pip install``.
        kind: of its model file: ``onnx`` or ``ncnn``.
        make: creates it from its module, the file and a number of threads.
        is_quantised: whether it quantises the network, so that its answers are only roughly those of other engines;
            ``make`` then also takes ``inputs`` to calibrate with.
    """

    module: str
    distribution: str
    kind: str
    make: Callable[..., Run]
    is_quantised: bool = False


def load(
    name: str, model: Path, given: dict[str, str | None], threads: int, inputs: Sequence[Array] = ()
) -> tuple[str, Run]:
    """Return an engine's name with its version, and a function that runs it.

    Args:
        model: the ``.pnnx.param`` file; the engine's own file is expected beside it.
        given: files by kind that replace it.
        inputs: those of a run, needed by engines that quantise.

    Raises:
        RivalError: it is not installed, has no file, or cannot load it.
    """
    rival = RIVALS[name]
    try:
        module = import_module(rival.module)
    except ImportError as exc:
        raise RivalError(f"not installed: pip install {rival.distribution} ({exc})") from None
    path = Path(given[rival.kind] or model.with_name(_stem(model) + _SUFFIXES[rival.kind]))
    if not path.is_file():
        raise RivalError(f"no file '{path}', expected the same network in its format (--{rival.kind} FILE)")
    more = {"inputs": inputs} if rival.is_quantised else {}
    try:
        return f"{name} {version(rival.distribution)}", rival.make(module, path, threads, **more)
    except Exception as exc:  # third-party libraries raise anything
        raise RivalError(f"cannot load '{path}': {message_of(exc)}") from exc


def _onnxruntime(module: Any, path: Path, threads: int) -> Run:
    options = module.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def _onnxruntime_int8(module: Any, path: Path, threads: int, inputs: Sequence[Array]) -> Run:
    """Create a runner of the file that onnxruntime's static quantiser writes: QDQ form, one weight scale a channel."""
    quantisation = import_module("onnxruntime.quantization")
    session = module.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = iter([dict(zip([each.name for each in session.get_inputs()], inputs, strict=True))])
    reader = type("Reader", (quantisation.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
    with tempfile.TemporaryDirectory() as folder:
        prepared, target = Path(folder) / "prepared.onnx", Path(folder) / "int8.onnx"
        quantisation.quant_pre_process(str(path), str(prepared))
        kind = quantisation.QuantType.QUInt8
        quantisation.quantize_static(str(prepared), str(target), reader, per_channel=True, activation_type=kind)
        return _onnxruntime(module, target, threads)


def _openvino_int8(module: Any, path: Path, threads: int, inputs: Sequence[Array]) -> Run:
    """Create a runner of the network that NNCF quantises; bfloat16 for the rest, where the processor has it."""
    nncf = import_module("nncf")
    sample = dict(enumerate(inputs))
    with redirect_stdout(sys.stderr):  # the progress bar of NNCF
        model = nncf.quantize(module.Core().read_model(str(path)), nncf.Dataset([sample]), subset_size=1)
    return run_openvino(module, model, threads, "bf16")


def run_openvino(module: Any, source: Path | Any, threads: int, precision: str = "f32") -> Run:
    """Create an OpenVINO runner.

    Args:
        source: a file, or a model of OpenVINO.
        precision: of products; by default OpenVINO uses bf16 on processors that have it.
    """
    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    model = str(source) if isinstance(source, Path) else source
    compiled = module.Core().compile_model(model, "CPU", hints)
    request, outputs = compiled.create_infer_request(), range(len(compiled.outputs))

    def run(inputs: Sequence[Array]) -> list[Array]:
        found = request.infer(list(inputs), share_inputs=True, share_outputs=True)
        return [found[index] for index in outputs]

    return run


def _ncnn(module: Any, path: Path, threads: int) -> Run:
    """Create an ncnn runner, which runs the items of a batch one after another because ncnn has no batches."""
    net = module.Net()
    net.opt.num_threads = threads
    for option in ("use_vulkan_compute", *(f"use_{kind}" for kind in _NCNN_HALVES)):
        setattr(net.opt, option, False)
    if net.load_param(str(path)) or net.load_model(str(path.with_suffix(".bin"))):
        raise RivalError("ncnn cannot load the model")
    outputs = len(net.output_names())

    def run_one(items: Sequence[Array]) -> list[Array]:
        extractor = net.create_extractor()
        for index, item in enumerate(items):
            extractor.input(f"in{index}", module.Mat(item.astype(np.int32) if item.dtype == np.int64 else item))
        found = [extractor.extract(f"out{index}") for index in range(outputs)]
        if any(status != 0 for status, _ in found):
            raise RivalError("ncnn failed to run the model")
        return [np.array(output) for _, output in found]

    def run(inputs: Sequence[Array]) -> list[Array]:
        return [np.stack(parts) for parts in zip(*map(run_one, zip(*inputs, strict=True)), strict=True)]

    return run


_NCNN_HALVES: Final = ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage")
_SUFFIXES: Final = {"onnx": ".onnx", "ncnn": ".ncnn.param"}
RIVALS: Final = {
    "onnxruntime": Rival(module="onnxruntime", distribution="onnxruntime", kind="onnx", make=_onnxruntime),
    "openvino": Rival(module="openvino", distribution="openvino", kind="onnx", make=run_openvino),
    "ncnn": Rival(module="ncnn", distribution="ncnn", kind="ncnn", make=_ncnn),
    "onnxruntime-int8": Rival(
        module="onnxruntime", distribution="onnxruntime", kind="onnx", make=_onnxruntime_int8, is_quantised=True
    ),
    "openvino-int8": Rival(
        module="openvino", distribution="openvino", kind="onnx", make=_openvino_int8, is_quantised=True
    ),
}


def _stem(model: Path) -> str:
    return model.name.removesuffix(".param").removesuffix(".pnnx").removesuffix(".onnx")


def message_of(exc: Exception) -> str:
    """Return the type and first line of an exception."""
    return f"{type(exc).__name__}: {str(exc).strip().partition(chr(10))[0]}"


class Contest:
    """Engines in the order they entered.

    Args:
        inputs: given to all of them.
        expected: the right answer.

    Attributes:
        errors: difference of each from the right answer, as a share of the largest magnitude.
    """

    def __init__(self, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
        self.errors: dict[str, float] = {}
        self._inputs = inputs
        self._expected = expected
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, name: str, run: Run, allowed: float = ALLOWED_SHARE) -> None:
        """Add an engine.

        Args:
            name: its name in the report.
            run: runs it.
            allowed: largest difference from the right answer, as a share of the largest magnitude.

        Raises:
            RivalError: it cannot run the inputs, or its answer is wrong.
        """
        try:
            answer = run(self._inputs)
        except Exception as exc:  # third-party libraries raise anything
            raise RivalError(f"cannot run it: {message_of(exc)}") from exc
        error = error_share(answer, self._expected)
        if not error <= allowed:
            raise RivalError(f"wrong answer: it differs by {error:.1e} of the largest magnitude")
        self._runs[name], self.errors[name] = run, error

    def measure(self, seconds: float, report: Callable[[int, int], None]) -> dict[str, Times]:
        """Return the times of all engines, run in turn."""
        return take_turns({name: partial(run, self._inputs) for name, run in self._runs.items()}, seconds, report)


def error_share(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], *, has_columns: bool = False) -> float:
    """Return the largest difference as a share of the output's largest magnitude; infinity for wrong shapes or NaN.

    Only floating-point outputs are compared: a class or an index may change with the last bit of its input.

    Args:
        has_columns: entries along the last axis have different units (pixels, probabilities): each column is
            compared with its own largest magnitude, and the worst counts.
    """
    if [each.shape for each in found] != [each.shape for each in expected]:
        return math.inf
    pairs = zip(found, expected, strict=True)
    return max((_share(a, b, has_columns) for a, b in pairs if b.dtype.kind == "f" and b.size), default=0.0)


def _share(found: NDArray[Any], expected: NDArray[Any], has_columns: bool) -> float:
    wide = expected.astype(np.float64)
    if not np.isfinite(wide).all():
        return 0.0 if np.array_equal(found, expected, equal_nan=True) else math.inf
    if not np.isfinite(found).all():
        return math.inf
    axes = tuple(range(wide.ndim - 1)) if has_columns else None
    difference = np.abs(found.astype(np.float64) - wide).max(axis=axes)
    magnitude = np.abs(wide).max(axis=axes)
    return float(np.max(difference / np.maximum(magnitude, np.finfo(np.float32).tiny)))
