"""The page about writing ONNX files counts what is written now."""

from __future__ import annotations

from docs.generate_writing_onnx import PAGE, render


def test_the_page_has_the_coverage_of_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python docs/generate_writing_onnx.py"
