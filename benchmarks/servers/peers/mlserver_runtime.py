"""A runtime of MLServer for ONNX Runtime. Its HTTP has no binary tensors: base64 is the shortest that it takes."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import Base64Codec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Runtime(MLModel):
    async def load(self) -> bool:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.size = tuple(map(int, os.environ["SHAPE"].split(",")))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        (data,) = Base64Codec.decode_input(payload.inputs[0])
        y = self.session.run(None, {self.input: np.frombuffer(data, np.float32).reshape(self.size)})[0]
        output = ResponseOutput(name="y", datatype="FP32", shape=list(y.shape), data=y.ravel().tolist())
        return InferenceResponse(model_name=self.name, outputs=[output])
