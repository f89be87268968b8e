"""The recorded samples: each a converted model, inputs and PyTorch's outputs (made by tests/data/layers/record.py)."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DATA = Path(__file__).parents[2] / "data"


@dataclass(frozen=True)
class InputSet:
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


@dataclass(frozen=True)
class Sample:
    path: Path
    name: str
    dtypes: dict[str, str]
    count: int
    rtol: float
    atol: float

    @cached_property
    def sets(self) -> tuple[InputSet, ...]:
        """Read when first asked for: those who only list samples need none of it."""
        with np.load(io.BytesIO(_pack(self.path).read(f"{self.name}/arrays.npz"))) as stored:
            arrays = {key: _typed(stored[key], self.dtypes[key]) for key in stored.files}
        return tuple(_input_set(arrays, f"set{k}_" if k else "") for k in range(self.count))

    @property
    def id(self) -> str:
        return f"{self.path.stem}-{self.name}"

    @property
    def param(self) -> str:
        """The text file of the converted pair."""
        return _pack(self.path).read(f"{self.name}/model.pnnx.param").decode()

    def extract(self, folder: Path) -> tuple[Path, Path]:
        """Write the converted pair into a folder."""
        paths = folder / "model.pnnx.param", folder / "model.pnnx.bin"
        for path in paths:
            path.write_bytes(_pack(self.path).read(f"{self.name}/{path.name}"))
        return paths


def all_samples(folder: str = "layers") -> list[Sample]:
    """The samples of tests/data/FOLDER, family by family."""
    return list(_samples(folder))


def assert_close(found: list[np.ndarray], expected: list[np.ndarray], sample: Sample) -> None:
    """Hold outputs against PyTorch's, within the sample's own tolerance."""
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    for got, want in zip(found, expected, strict=True):
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=sample.rtol, atol=sample.atol)


# Once a process: opening a pack takes longer than reading a sample of it, and many modules go through all of them.
@cache
def _samples(folder: str) -> tuple[Sample, ...]:
    return tuple(sample for path in sorted((DATA / folder).glob("*.zip")) for sample in _read(path))


@cache
def _pack(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


def _read(path: Path) -> list[Sample]:
    pack = _pack(path)
    names = sorted({name.split("/")[0] for name in pack.namelist()})
    return [_sample(path, name, pack) for name in names]


def _sample(path: Path, name: str, pack: zipfile.ZipFile) -> Sample:
    facts: dict[str, Any] = json.loads(pack.read(f"{name}/sample.json"))
    return Sample(path, name, facts["dtypes"], facts["sets"], facts["rtol"], facts["atol"])


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def _input_set(arrays: dict[str, np.ndarray], prefix: str) -> InputSet:
    def numbered(kind: str) -> list[np.ndarray]:
        count = sum(key.startswith(f"{prefix}{kind}_") for key in arrays)
        return [arrays[f"{prefix}{kind}_{i}"] for i in range(count)]

    return InputSet(numbered("in"), numbered("out"))
