"""Record PyTorch's answers for the samples of one or more families.

    python tests/data/layers/record.py conv shape        (needs torch and pnnx: the `export` extra)
    python tests/data/layers/record.py conv --only relu  (re-records some, keeps the rest)
    python tests/data/layers/record.py --folder tests/data/networks vision

A family is a module beside this one with a list ``SAMPLES``. Every sample is traced, converted by pnnx and run by
PyTorch; the converted pair, the inputs and PyTorch's outputs go into ``<family>.zip``, one folder a sample:

    <sample>/model.pnnx.param, <sample>/model.pnnx.bin     as the converter wrote them
    <sample>/arrays.npz                                    in_0, in_1, ..., out_0, out_1, ... (and set1_in_0, ... for further sets)
    <sample>/sample.json                                   dtypes, tolerance, number of sets
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pnnx
import torch

HERE = Path(__file__).parent
SUFFIXES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One interesting case of an operator.

    Args:
        name: file-system friendly and unique in its family.
        call: a function of tensors, or a module; traced by torch and converted by pnnx.
        inputs: example tensors; the first input set.
        further: more input sets (other values or, with ``dynamic``, other shapes).
        dynamic: a second set of inputs for the converter, so that differing dims become ``?``.
        param, attributes: the file as text and its weights (``"op.key"`` -> array), where the converter cannot make it (old or
            source-only types); PyTorch's answer still comes from ``call``.
        opt_level: how far the converter simplifies.
        rtol, atol: relative and absolute tolerance against PyTorch's answer.
    """

    name: str
    call: Callable[..., Any]
    inputs: Sequence[torch.Tensor] = ()
    further: Sequence[Sequence[torch.Tensor]] = ()
    dynamic: Sequence[torch.Tensor] = ()
    param: str | None = None
    attributes: dict[str, np.ndarray] = field(default_factory=dict)
    opt_level: int = 2
    rtol: float = 1e-5
    atol: float = 1e-6


class _Wrapped(torch.nn.Module):
    """The converter prints a root module through its functional form, so it is made a child."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(*inputs)


def flatten(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in flatten(item)]
    return [torch.as_tensor(value)]


def export(sample: Sample) -> tuple[bytes, bytes]:
    """The converted pair; the converter may crash after writing it, so its exit status says nothing."""
    if sample.param is not None:
        return sample.param.encode(), archive(sample.attributes)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(_Wrapped(sample.call).eval(), tuple(sample.inputs), check_trace=False)
        traced.save(f"{folder}/model.pt")
        level = f"optlevel={sample.opt_level}"
        command = [str(Path(pnnx.__file__).parent / "bin" / "pnnx"), "model.pt", *_shapes(sample), level]
        if not Path(command[0]).exists():
            command[0] = "pnnx"
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
        param = Path(folder, "model.pnnx.param")
        if not param.exists():
            raise SystemExit(f"{sample.name}: not converted\n{(done.stdout + done.stderr).decode()[-1500:]}")
        return param.read_bytes(), Path(folder, "model.pnnx.bin").read_bytes()


def _shapes(sample: Sample) -> list[str]:
    def one(tensors: Sequence[torch.Tensor]) -> str:
        return ",".join(f"[{','.join(map(str, t.shape))}]{SUFFIXES[t.dtype]}" for t in tensors)

    arguments = [f"inputshape={one(sample.inputs)}"] if sample.inputs else []
    return arguments + ([f"inputshape2={one(sample.dynamic)}"] if sample.dynamic else [])


def archive(attributes: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as pack:
        for name, array in attributes.items():
            pack.writestr(zipfile.ZipInfo(name), np.ascontiguousarray(array).tobytes())
    return buffer.getvalue()


def arrays(sample: Sample) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    stored: dict[str, np.ndarray] = {}
    dtypes: dict[str, str] = {}
    sets = [sample.inputs, *sample.further]
    for k, inputs in enumerate(sets):
        prefix = f"set{k}_" if k else ""
        with torch.no_grad():
            outputs = flatten(_Wrapped(sample.call).eval()(*[t.clone() for t in inputs]))
        for kind, tensors in (("in", inputs), ("out", outputs)):
            for i, tensor in enumerate(tensors):
                key = f"{prefix}{kind}_{i}"
                tensor = tensor.detach().resolve_conj().resolve_neg()
                dtypes[key] = str(tensor.dtype).removeprefix("torch.")
                if tensor.dtype == torch.bfloat16:
                    tensor = tensor.contiguous().view(torch.int16)
                stored[key] = tensor.numpy()
    return stored, {"dtypes": dtypes, "sets": len(sets), "rtol": sample.rtol, "atol": sample.atol}


def record(folder: Path, family: str, only: str | None) -> None:
    module = importlib.import_module(family)
    path = folder / f"{family}.zip"
    kept: dict[str, bytes] = {}
    names = [sample.name for sample in module.SAMPLES]
    if len(set(names)) != len(names):
        raise SystemExit(f"{family}: sample names repeat: {sorted({n for n in names if names.count(n) > 1})}")
    if only is not None and path.exists():
        with zipfile.ZipFile(path) as old:
            kept = {name: old.read(name) for name in old.namelist()}
    for sample in module.SAMPLES:
        if only is not None and only not in sample.name and f"{sample.name}/sample.json" in kept:
            continue
        param, weights = export(sample)
        stored, facts = arrays(sample)
        buffer = io.BytesIO()
        np.savez(buffer, **stored)
        kept[f"{sample.name}/model.pnnx.param"] = param
        kept[f"{sample.name}/model.pnnx.bin"] = weights
        kept[f"{sample.name}/arrays.npz"] = buffer.getvalue()
        kept[f"{sample.name}/sample.json"] = json.dumps(facts).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in sorted(kept.items()):
            if name.split("/")[0] in names:
                info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                pack.writestr(info, content)
    print(f"{family}: {len(names)} samples, {path.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--only", help="record only samples whose name contains this, and new ones")
    parser.add_argument(
        "--folder", type=Path, default=HERE, help="where the families are; by default beside this script"
    )
    options = parser.parse_args()
    sys.path[:0] = [str(options.folder.resolve()), str(HERE)]
    for family in options.families:
        torch.manual_seed(0)
        record(options.folder, family, options.only)


if __name__ == "__main__":
    main()
