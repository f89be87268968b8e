"""Server of embeddings as one writes it with FastAPI: one text at a time, without a change of threads.

    python -m benchmarks.texts.fastapi_peer ENGINE PORT FOLDER THREADS PRECISION

It answers `/v1/embeddings` as OpenAI's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fastapi
import uvicorn

from benchmarks.texts.rivals import answer, open_rival

app = fastapi.FastAPI()
embed = open_rival(sys.argv[1], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])


@app.get("/health")
async def health() -> dict[str, bool]:
    return {"ready": True}


@app.post("/v1/embeddings")
async def embeddings(body: dict[str, Any]) -> fastapi.responses.JSONResponse:
    return fastapi.responses.JSONResponse(answer(embed([body["input"]])[0].tolist()))


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
