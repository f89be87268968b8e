"""Server of embeddings as one writes it with MLServer: a runtime with a route of its own, in a worker process.

    python -m benchmarks.texts.mlserver_peer ENGINE PORT FOLDER THREADS PRECISION

It answers `/v1/embeddings` as OpenAI's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlserver
from mlserver.handlers import custom_handler
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.texts.rivals import answer, open_rival


class Embeddings(mlserver.MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        engine, folder, threads, precision = self.settings.parameters.extra["arguments"]
        self.embed = open_rival(engine, Path(folder), int(threads), precision)
        return True

    @custom_handler(rest_path="/health", rest_method="GET")  # type: ignore[untyped-decorator]
    async def health(self) -> dict[str, bool]:
        return {"ready": True}

    @custom_handler(rest_path="/v1/embeddings")  # type: ignore[untyped-decorator]
    async def embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        return answer(self.embed([body["input"]])[0].tolist())

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        raise NotImplementedError


def main() -> None:
    """Write the settings, and become the server."""
    engine, port, folder, threads, precision = sys.argv[1:]
    home = Path(tempfile.mkdtemp())
    extra = {"arguments": [engine, folder, threads, precision]}
    model = {"name": "m", "implementation": "benchmarks.texts.mlserver_peer.Embeddings", "parameters": {"extra": extra}}
    ports = {"http_port": int(port), "grpc_port": int(port) + 1, "metrics_port": int(port) + 2}
    (home / "model-settings.json").write_text(json.dumps(model))
    (home / "settings.json").write_text(
        json.dumps({**ports, "host": "127.0.0.1", "debug": False, "metrics_dir": str(home)})
    )
    os.execv(sys.executable, [sys.executable, "-c", "from mlserver.cli import main; main()", "start", str(home)])


if __name__ == "__main__":
    main()
