"""ONNX's own tests of this backend; ``pytest`` collects them from ``backend_test``."""

from __future__ import annotations

from onnx.backend.test import BackendTest

from benchmarks.onnx_scoreboard import backend

backend_test = BackendTest(backend, __name__)
globals().update(backend_test.test_cases)
