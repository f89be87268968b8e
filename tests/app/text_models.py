"""Small text models with recorded answers; see tests/data/text/record.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parent.parent / "data" / "text"
ANSWERS: Final[dict[str, Any]] = json.loads((DATA / "answers.json").read_text(encoding="utf-8"))
TASKS: Final = (
    "embedding",
    "rerank",
    "text-classification",
    "token-classification",
    "question-answering",
    "fill-mask",
)


def write_text_model(store: Path, task: str, config: str = "", name: str | None = None) -> Path:
    """Write a model with a tokenizer; return its folder."""
    folder = store / (name or task)
    (folder / "1").mkdir(parents=True)
    shutil.copy(DATA / f"{task}.onnx", folder / "1" / "model.onnx")
    shutil.copy(DATA / "tokenizer.json", folder / "1" / "tokenizer.json")
    labels = f"labels = {json.dumps(ANSWERS['labels'])}\n" if task.endswith("classification") else ""
    (folder / "config.toml").write_text(f'task = "{task}"\n{labels}{config}', encoding="utf-8")
    return folder
