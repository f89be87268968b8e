"""Score the engine on the conformance corpus and print the reasons of every failure.

    python tests/corpus_score.py [--corpus FOLDER] [--only SUBSTRING] [--quiet]

Exit status 1 unless every case passes.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=DEFAULT)
    parser.add_argument("--only", default="", help="score only cases whose name contains this")
    parser.add_argument("--quiet", action="store_true", help="print the score alone")
    options = parser.parse_args()
    compare = load_compare(options.corpus)
    cases = [folder for folder in sorted((options.corpus / "cases").iterdir()) if options.only in folder.name]
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
