"""Score the engine on the conformance corpus and print the reasons of every failure.

    python tests/corpus_score.py [--corpus FOLDER] [--only SUBSTRING] [--quiet] [--kernels]

Exit status 1 unless every case passes. With ``--kernels`` it runs the cases, and the networks of the tests, as machine
code instead, and prints which have no kernel at all and which operators run on their reference layers, and why.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
import engine

DEFAULT = Path(__file__).parent.parent.parent / "shared" / "corpus"


def load_compare(corpus: Path) -> ModuleType:
    """The corpus's own scoring module."""
    spec = importlib.util.spec_from_file_location("corpus_compare", corpus / "compare.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"no compare.py in {corpus.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(param: str, bin: str, inputs: list[Any]) -> list[Any]:
    return list(engine.Session(engine.load(param, bin), backend="reference").run(inputs))


def networks(folder: Path) -> Iterator[tuple[str, Path, Path, list[Any]]]:
    """The networks of the tests: name, the file pair, and inputs."""
    from tests.engine.layers.samples import all_samples

    for sample in all_samples("networks"):
        place = folder / sample.id.replace("/", "_")
        place.mkdir()
        yield sample.id, *sample.extract(place), sample.sets[0].inputs


def cases_of(folders: Sequence[Path], compare: ModuleType) -> Iterator[tuple[str, Path, Path, list[Any]]]:
    """The cases of the corpus, in the same way."""
    for folder in folders:
        yield folder.name, folder / "model.pnnx.param", folder / "model.pnnx.bin", compare.load_set(str(folder), 0)[0]


def rows_of(param: Path, bin: Path, inputs: list[Any]) -> list[dict[str, Any]]:
    """Return how every operator runs, without those that have no layer."""
    session = engine.Session(engine.load(param, bin), cache=None, threads=1)
    session.run(inputs)
    rows = [row for row in session.describe()["operators"] if "kernel" in row]
    return [row | {"kernel": "reference"} for row in rows] if session.compile_failure else rows


def count_kernels(kind: str, graphs: Iterator[tuple[str, Path, Path, list[Any]]]) -> None:
    """Print which of some graphs have no kernel, and which operators fall back."""
    missing, reasons, total = [], Counter[tuple[str, str]](), 0
    for name, param, bin, inputs in graphs:
        rows = rows_of(param, bin, inputs)
        total += 1
        left = [(row["type"], row.get("why", "no operator beside it has one")) for row in rows]
        left = [each for each, row in zip(left, rows, strict=True) if row["kernel"] == "reference"]
        reasons.update(left)
        told = {row["kernel"] for row in rows if not row["type"].startswith("prim::")} - {"removed"}
        if told == {"reference"}:
            missing.append(name)
    for (type_, why), count in reasons.most_common():
        print(f"{count:4d} {type_:<40} {why}")
    print(f"{len(missing)} of {total} {kind} have no kernel: {', '.join(missing)}")
    print(f"{sum(reasons.values())} operators in all run on their reference layers\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=DEFAULT)
    parser.add_argument("--only", default="", help="score only cases whose name contains this")
    parser.add_argument("--quiet", action="store_true", help="print the score alone")
    parser.add_argument("--kernels", action="store_true", help="tell what runs without a kernel instead")
    options = parser.parse_args()
    compare = load_compare(options.corpus)
    cases = [folder for folder in sorted((options.corpus / "cases").iterdir()) if options.only in folder.name]
    if options.kernels:
        logging.disable()
        count_kernels("cases", cases_of(cases, compare))
        with tempfile.TemporaryDirectory() as folder:
            count_kernels("networks", networks(Path(folder)))
        return 0
    passed = 0
    for folder in cases:
        ok, detail = compare.check_case(str(folder), run)
        passed += ok
        reasons = [result["reason"] for results in detail for result in results if result["reason"]]
        if not ok and not options.quiet:
            print(f"{folder.name}: {reasons[0]}")
    print(f"{passed} of {len(cases)} cases pass")
    return 0 if passed == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
