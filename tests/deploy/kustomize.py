"""Subset of Kustomize that deploy/kubernetes uses: resources, components, strategic merge patches, images.

For machines without kubectl; with kubectl, a test compares both. Unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]

_KEYS: Final = {"apiVersion", "kind", "resources", "components", "patches", "images"}
# Key that identifies the items of a list (Kubernetes' patchMergeKey). Other lists are replaced.
_MERGED_BY: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}


def render(folder: Path) -> list[Object]:
    """Return the objects that ``kubectl kustomize`` prints, in any order."""
    return _apply(folder, [])


def documents(path: Path) -> Iterator[Object]:
    """Yield the objects of a file."""
    yield from (each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None)


def _apply(folder: Path, objects: list[Object]) -> list[Object]:
    (plan,) = documents(folder / "kustomization.yaml")
    assert plan.keys() <= _KEYS, f"{folder}: {plan.keys() - _KEYS}"
    for name in plan.get("resources", []):
        found = render(folder / name) if (folder / name).is_dir() else documents(folder / name)
        objects = [*objects, *found]
    names = [_name(each) for each in objects]
    assert len(names) == len(set(names)), names
    for name in plan.get("components", []):
        objects = _apply(folder / name, objects)
    for patch in plan.get("patches", []):
        assert patch.keys() == {"path"}
        for change in documents(folder / patch["path"]):
            (target,) = (each for each in objects if _name(each) == _name(change))
            _merge(target, change)
    for image in plan.get("images", []):
        for container in (each for found in objects for each in containers(found)):
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    return objects


def containers(found: Object) -> list[Object]:
    """Return all containers of a Deployment."""
    if found["kind"] != "Deployment":
        return []
    pod = found["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def _name(found: Object) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


def _merge(target: Object, change: Object) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif key in _MERGED_BY and key in target:
            target[key] = _merged(target[key], value, _MERGED_BY[key])
        else:
            target[key] = value


def _merged(before: list[Object], changes: list[Object], key: str) -> list[Object]:
    """Merge lists: changed and new items first, then the others, each in their order."""
    there = {each[key]: each for each in before}
    changed = []
    for change in changes:
        target = there.pop(change[key], {})
        _merge(target, change)
        changed.append(target)
    return [*changed, *there.values()]
