"""The engines: each makes a function from an input array to the output array, all in float32 on T threads.

A library is imported when its engine is made, so that no process holds more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.files import Files
from benchmarks.networks import NETWORKS
from benchmarks.record import OURS

Array = NDArray[Any]
Run = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What an engine is to run, and how."""

    network: str
    files: Files
    batch: int
    threads: int
    backend: Any = "auto"


def _ours(job: Job) -> Run:
    import engine

    session = engine.Session(engine.load(job.files.param), backend=job.backend, threads=job.threads)
    session.prepare(batch=job.batch)  # without it the reference would answer other batches until they are compiled
    return lambda x: session.run([x])[0]


def _onnxruntime(job: Job) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(job.files.onnx(job.batch)), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def _openvino(job: Job) -> Run:
    import openvino

    model = openvino.Core().compile_model(
        str(job.files.onnx(job.batch)),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": job.threads,
            "PERFORMANCE_HINT": "LATENCY",
            # Where the processor has bfloat16 instructions it would be used without asking.
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = model.create_infer_request()
    return lambda x: request.infer([x], share_inputs=True, share_outputs=True)[0]


def _ncnn(job: Job) -> Run:
    """ncnn knows no batch: the items of one are run one after another."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = job.threads
    for option in (
        "use_vulkan_compute",
        "use_fp16_packed",
        "use_fp16_storage",
        "use_fp16_arithmetic",
        "use_bf16_packed",
        "use_bf16_storage",
    ):
        setattr(net.opt, option, False)
    if net.load_param(str(job.files.ncnn_param)) or net.load_model(str(job.files.ncnn_bin)):
        raise RuntimeError("ncnn cannot load the network")

    def run_one(item: Array) -> Array:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(item))
        status, output = extractor.extract("out0")
        if status != 0:
            raise RuntimeError("ncnn cannot run the network")
        return np.array(output)

    def run(x: Array) -> Array:
        items = x.astype(np.int32) if x.dtype == np.int64 else x
        return np.stack([run_one(item) for item in items])

    return run


def _torch(job: Job) -> Run:
    import torch

    torch.set_num_threads(job.threads)
    module = NETWORKS[job.network].make_module()
    module.load_state_dict(torch.load(job.files.weights))
    module.eval().requires_grad_(False)

    def run(x: Array) -> Array:
        with torch.inference_mode():
            found: Array = module(torch.from_numpy(x)).numpy()
        return found

    return run


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, and the modules and the distribution that it comes from."""

    make: Callable[[Job], Run]
    distribution: str
    modules: tuple[str, ...]

    def load_library(self) -> None:
        """Import what the engine needs, so that it is not counted as building."""
        for module in self.modules:
            import_module(module)


ENGINES: Final = {
    OURS: Engine(_ours, "pnnx-serve", ("engine",)),
    "onnxruntime": Engine(_onnxruntime, "onnxruntime", ("onnxruntime",)),
    "openvino": Engine(_openvino, "openvino", ("openvino",)),
    "ncnn": Engine(_ncnn, "ncnn", ("ncnn",)),
    "torch": Engine(_torch, "torch", ("torch",)),
}
