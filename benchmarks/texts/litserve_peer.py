"""Server of embeddings as one writes it with LitServe: up to 16 waiting requests join to a padded batch.

    python -m benchmarks.texts.litserve_peer ENGINE PORT FOLDER THREADS PRECISION

It answers `/v1/embeddings` as OpenAI's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import litserve

from benchmarks.texts.rivals import answer, open_rival


class Api(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        self.embed = open_rival(sys.argv[1], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])

    def decode_request(self, request):  # LitServe reads the annotation: without one it is the JSON
        return str(request["input"])

    def predict(self, texts: list[str]) -> Any:
        return self.embed(texts)

    def encode_response(self, vector: Any) -> dict[str, Any]:
        return answer(vector.tolist())


if __name__ == "__main__":
    api = Api(max_batch_size=16, batch_timeout=0.001, api_path="/v1/embeddings")
    server = litserve.LitServer(api, accelerator="cpu", timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", generate_client_file=False)
