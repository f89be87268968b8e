"""Raw results: one JSON file a run of a benchmark, below `benchmarks/raw`, which is not in git."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

RAW: Final = Path(__file__).with_name("raw")
# A clock of nanoseconds says no more of a run that takes milliseconds.
DIGITS: Final = 6


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run of a benchmark.

    Args:
        kind: the section of a processor's page that it belongs to, as in `benchmarks.page.SECTIONS`.
        how: how it was measured: numbers of turns, clients, threads.
        body: its tables, in Markdown.
        records: what the tables were made from.
    """

    kind: str
    machine: Mapping[str, Any]
    how: str
    body: str
    records: Sequence[Mapping[str, Any]]

    def text(self) -> str:
        """Return the report that is printed."""
        from benchmarks.machine import heading

        return f"{heading(self.machine)}; {self.how}\n\n{self.body}\n"

    def publish(self, name: str | None) -> None:
        """Print the report; with a name, save it as well."""
        print(self.text())
        if name:
            self.save(name)

    def save(self, name: str) -> None:
        """Write `benchmarks/raw/NAME.json`, from which `benchmarks.page` makes a section."""
        data = {
            "kind": self.kind,
            "machine": dict(self.machine),
            "how": self.how,
            "body": self.body,
            "records": self.records,
        }
        write(RAW / name, self.text(), data)


def write(path: Path, text: str, data: Mapping[str, Any]) -> None:
    """Write a report as PATH.md and its data as PATH.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.md").write_text(text, encoding="utf-8")
    path.with_name(f"{path.name}.json").write_text(raw_text(data), encoding="utf-8")


def pack(path: Path, data: Mapping[str, Any]) -> None:
    """Write compressed JSON; equal data makes an equal file."""
    text = json.dumps(_rounded_deeply(data), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def unpack(path: Path) -> dict[str, Any]:
    """Read what `pack` has written."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def raw_text(data: Any) -> str:
    """Return `data` as JSON: an object or list a line, lists of plain values on one line, numbers to six digits."""
    return _formatted(data, "") + "\n"


def _formatted(data: Any, indent: str) -> str:
    inner = f"{indent} "
    if isinstance(data, Mapping) and data:
        return _block(
            "{}", [f"{json.dumps(str(key))}: {_formatted(value, inner)}" for key, value in data.items()], indent
        )
    if isinstance(data, Sequence) and not isinstance(data, str) and any(map(_is_nested, data)):
        return _block("[]", [_formatted(value, inner) for value in data], indent)
    return json.dumps(_rounded(data))


def _block(brackets: str, lines: Sequence[str], indent: str) -> str:
    body = ",".join(f"\n{indent} {line}" for line in lines)
    return f"{brackets[0]}{body}\n{indent}{brackets[1]}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def _rounded_deeply(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded_deeply(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded_deeply(each) for each in value]
    return _rounded(value)
