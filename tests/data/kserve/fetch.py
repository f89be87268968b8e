"""Make schemas.json: what KServe says its objects look like, for the tests of deploy/kserve.

    python tests/data/kserve/fetch.py              # from GitHub
    python tests/data/kserve/fetch.py --git DIR    # from a clone that has the commit

The source is https://github.com/kserve/kserve, of the Kubernetes resource definitions in config/crd/full; its licence
is the Apache License 2.0. Taken is what a runtime and a predictor with a model may say. Left out is what our objects do
not use and what would make the file large: descriptions, other frameworks' predictors, explainers, transformers,
affinities, further containers, kinds of volumes. An object that uses what is left out fails the test, so that it is
noticed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

COMMIT: Final = "aaac4e294dae2c7b1aa1886447793f3aa1c30912"  # 2026-08-21, after v0.20.0
SOURCE: Final = "https://raw.githubusercontent.com/kserve/kserve"
FILE: Final = "config/crd/full/serving.kserve.io_{}.yaml"
KINDS: Final = {"clusterservingruntimes": "v1alpha1", "inferenceservices": "v1beta1"}
VOLUMES: Final = ("name", "emptyDir", "persistentVolumeClaim", "configMap", "secret")
LEFT_OUT: Final = {
    "affinity", "batcher", "builtInAdapter", "canary", "ephemeralContainers", "explainer", "huggingface",
    "initContainers", "lightgbm", "logger", "onnx", "paddle", "pmml", "pytorch", "sklearn", "status", "tensorflow",
    "transformer", "triton", "workerSpec", "xgboost", "lifecycle",
}  # fmt: skip


def trimmed(schema: Any, at: str = "") -> Any:
    """A schema without what is left out.

    Args:
        at: the property it is of.
    """
    if isinstance(schema, list):
        return [trimmed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key == "description" and isinstance(value, str):
            continue
        if key == "properties":
            value = {name: trimmed(each, name) for name, each in value.items() if name not in LEFT_OUT}
            if at == "predictor":
                value.pop("containers", None)
        elif key == "items" and at == "volumes":
            value = {**value, "properties": {name: value["properties"][name] for name in VOLUMES}}
            value = trimmed(value)
        else:
            value = trimmed(value)
        found[key] = value
    return found


def schema_of(text: str, version: str) -> Any:
    """The trimmed schema of a version of a resource definition."""
    definition = yaml.safe_load(text)
    (chosen,) = (each for each in definition["spec"]["versions"] if each["name"] == version)
    return trimmed(chosen["schema"]["openAPIV3Schema"])


def _from_github(path: str) -> str:
    with urllib.request.urlopen(f"{SOURCE}/{COMMIT}/{path}", timeout=60) as answer:
        return str(answer.read().decode())


def _from_clone(clone: str) -> Callable[[str], str]:
    return lambda path: (
        subprocess.run(
            ["git", "-C", clone, "show", f"{COMMIT}:{path}"], capture_output=True, text=True, check=True
        ).stdout
    )


def main() -> None:
    """Fetch, trim, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--git", metavar="DIR", help="a clone of the repository, or its git directory")
    clone = parser.parse_args().git
    read = _from_github if clone is None else _from_clone(clone)
    schemas = {name: schema_of(read(FILE.format(name)), version) for name, version in KINDS.items()}
    about = {"source": f"https://github.com/kserve/kserve/tree/{COMMIT}/config/crd/full", "licence": "Apache-2.0"}
    path = Path(__file__).with_name("schemas.json")
    path.write_text(json.dumps({**about, "schemas": schemas}, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
