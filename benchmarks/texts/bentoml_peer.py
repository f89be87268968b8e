"""Server of embeddings as one writes it with BentoML: waiting requests join to a padded batch.

    python -m benchmarks.texts.bentoml_peer ENGINE PORT FOLDER THREADS PRECISION

It answers `/v1/embeddings` with the vector of `{"input": text}` in OpenAI's form.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import bentoml

from benchmarks.texts.rivals import answer, open_rival

# BentoML imports this module again in the processes that it starts.
ARGUMENTS = os.environ.setdefault("BENCHMARK_PEER", "\n".join(sys.argv[1:])).split("\n")


@bentoml.service(workers=1, traffic={"timeout": 120})  # type: ignore[misc]
class Embeddings:
    def __init__(self) -> None:
        engine, _, folder, threads, precision = ARGUMENTS
        self.embed = open_rival(engine, Path(folder), int(threads), precision)

    @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=120_000)  # type: ignore[misc]
    def vectors(self, texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = self.embed(texts).tolist()
        return found

    @bentoml.api(route="/v1/embeddings")  # type: ignore[misc]
    async def embeddings(self, input: str) -> dict[str, Any]:
        (vector,) = await self.to_async.vectors([input])
        return answer(vector)


if __name__ == "__main__":
    os.execv(
        sys.executable,
        [sys.executable, "-m", "bentoml", "serve", "benchmarks.texts.bentoml_peer:Embeddings", "--port", ARGUMENTS[1]],
    )
