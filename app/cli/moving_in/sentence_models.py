"""Folders of sentence-transformers: pooling of tokens, layers behind it, and normalisation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.cli.moving_in.found import MAX_JSON, read_json
from app.errors import ConfigError
from app.messages import cut
from app.text_files import read_text

MODULES: Final = "modules.json"
_MODES: Final = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}
_KINDS: Final = ("Transformer", "Pooling", "Dense", "Normalize")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceModel:
    """Pooling, dense layers and normalisation behind a transformer.

    Attributes:
        pooling: mean, cls or last.
        layers: folders of dense layers behind the pooling.
        normalises: whether vectors are scaled to length 1.
        notes: what the user should know.
    """

    pooling: str
    layers: tuple[Path, ...]
    normalises: bool
    notes: tuple[str, ...]

    @property
    def table(self) -> dict[str, Any]:
        """Return the table [embedding]."""
        return {"pooling": self.pooling, "normalise": self.normalises}


def read_sentence_model(folder: Path) -> SentenceModel:
    """Return what modules.json tells, or mean pooling and normalisation if there is none.

    Raises:
        ConfigError: a module, an order of modules or a pooling that has no counterpart here.
    """
    if not (folder / MODULES).exists():
        return SentenceModel(pooling=_pooling(folder / "1_Pooling"), layers=(), normalises=True, notes=())
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    expected = [kind for name in _KINDS for kind in kinds if kind == name]
    if kinds != expected or any(kinds.count(each) > 1 for each in ("Transformer", "Pooling", "Normalize")):
        raise ConfigError(
            f"{MODULES}: found {' → '.join(map(cut, kinds))}, expected Transformer → Pooling → Dense → Normalize, of"
            " which the last two may be missing"
        )
    pooling = next((path for kind, path in modules if kind == "Pooling"), folder / "1_Pooling")
    return SentenceModel(
        pooling=_pooling(pooling),
        layers=tuple(path for kind, path in modules if kind == "Dense"),
        normalises="Normalize" in kinds,
        notes=tuple(_prompts(folder)),
    )


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return kind and folder of each module."""
    try:
        modules = json.loads(read_text(folder / MODULES, MAX_JSON))
        return [
            (str(each["type"]).rpartition(".")[2], folder / Path(str(each.get("path", ""))).name) for each in modules
        ]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise ConfigError(f'{MODULES}: expected a list of objects with "type" and "path"') from None


def _pooling(folder: Path) -> str:
    table = read_json(folder / "config.json")
    used = [
        key.removeprefix("pooling_mode_") for key, value in table.items() if key.startswith("pooling_mode_") and value
    ]
    if isinstance(table.get("pooling_mode"), str):  # newer versions
        used = [{"mean": "mean_tokens", "cls": "cls_token"}.get(table["pooling_mode"], table["pooling_mode"])]
    if any(mode not in _MODES for mode in used) or len(used) > 1:
        raise ConfigError(
            f"{folder.name}/config.json: found pooling by {', '.join(map(cut, used))}, expected mean, cls or last"
        )
    return _MODES[used[0]] if used else "mean"


def _prompts(folder: Path) -> Sequence[str]:
    prompts = read_json(folder / "config_sentence_transformers.json").get("prompts")
    if not isinstance(prompts, dict) or not any(prompts.values()):
        return ()
    told = ", ".join(f"{cut(str(name))} '{cut(str(text))}'" for name, text in prompts.items() if text)
    return (f"prompts are not added to texts; clients put them in front: {told}",)
