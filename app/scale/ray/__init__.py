"""The service as an application of Ray Serve (docs/scaling.md), with the same routes, answers and errors.

    from ray import serve
    from app.scale.ray import Options, build

    serve.run(build(Options(store="/models", replicas=2)))

or, in a file for ``serve deploy``: ``import_path: app.scale.ray:build`` with the fields of ``Options`` as ``args``.
"""

from __future__ import annotations

from app.scale.ray.application import build
from app.scale.ray.options import ModelOptions, Options

__all__ = ["ModelOptions", "Options", "build"]
