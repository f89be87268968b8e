"""BentoML and ONNX Runtime; bytes in and out. The environment has MODEL and SHAPE.

bentoml serve bento:Service --port PORT
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
import onnxruntime as ort
from bentoml.validators import ContentType


@bentoml.service(workers=1, traffic={"timeout": 120})
class Service:
    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name
        self.shape = tuple(map(int, os.environ["SHAPE"].split(",")))

    @bentoml.api
    def infer(self, body: Annotated[Path, ContentType("application/octet-stream")], /) -> bytes:
        x = np.frombuffer(body.read_bytes(), np.float32).reshape(self.shape)
        return self.session.run(None, {self.name: x})[0].tobytes()
