"""FastAPI and ONNX Runtime as one writes them for speed: the body's bytes in, the output's bytes out, no thread hop.

python plain_fastapi.py PORT MODEL.onnx SHAPE
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import FastAPI, Request, Response

shape = tuple(map(int, sys.argv[3].split(",")))
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
app = FastAPI()


@app.get("/ready")
async def ready() -> dict[str, Any]:
    return {"ready": True}


@app.post("/infer")
async def infer(request: Request) -> Response:
    x = np.frombuffer(await request.body(), np.float32).reshape(shape)
    return Response(session.run(None, {name: x})[0].tobytes(), media_type="application/octet-stream")


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
