"""Write the table of docs/writing-onnx.md: which core operators, samples and cases can be written as ONNX files.

    python docs/generate_writing_onnx.py

A test fails when the table is not what this script would write.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine
from docs.generate_core_operators import _names
from docs.generate_operators import table_line
from engine.layers.definition.composite import Composite
from engine.onnx_writing import to_model
from engine.onnx_writing.registry import rule_of
from tests.engine.layers.samples import all_samples

PAGE: Final = Path(__file__).with_name("writing-onnx.md")
BEGIN, END = "<!-- coverage -->", "<!-- end of coverage -->"


def render() -> str:
    """Return the page with its tables as they are now."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{_tables()}{END}{rest.partition(END)[2]}"


def _tables() -> str:
    written: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    total: Counter[str] = Counter()
    for layer, types in _names().items():
        if issubclass(layer, Composite):
            continue
        family = layer.__module__.split(".")[2]
        total[family] += 1
        if rule_of(layer) is not None:
            written[family] += 1
        else:
            missing.setdefault(family, []).append(types[0])
    count, samples = _samples()
    lines = [
        f"{sum(written.values())} of {sum(total.values())} core operators can be written, and so can operators that "
        f"are composed of them; {count} of {samples} recorded samples are.",
        "",
        table_line(["family", "written", "refused"]),
        table_line(["---", "---", "---"]),
    ]
    for family in sorted(total):
        names = " ".join(f"`{name}`" for name in sorted(missing.get(family, [])))
        lines.append(table_line([family, f"{written[family]} of {total[family]}", names]))
    return "\n".join([*lines, ""])


def _samples() -> tuple[int, int]:
    """Return how many recorded samples can be written, and their number."""
    results = list(_are_written())
    return sum(results), len(results)


def _are_written() -> Iterator[bool]:
    for sample in all_samples():
        with tempfile.TemporaryDirectory() as folder:
            graph = engine.load(*sample.extract(Path(folder)))
            try:
                to_model(graph)
            except engine.UnsupportedOperatorError:
                yield False
            else:
                yield True


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
