"""LitServe and ONNX Runtime; the tensor comes as a file of a form, the binary way that it has.

python lit.py PORT MODEL.onnx SHAPE
"""

import sys
from typing import Any

import litserve as ls
import numpy as np
import onnxruntime as ort
from fastapi import Response


class Api(ls.LitAPI):
    def setup(self, device: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name
        self.shape = tuple(map(int, sys.argv[3].split(",")))

    def decode_request(self, request):  # LitServe reads the annotation: without one it is the form
        return np.frombuffer(request["tensor"].file.read(), np.float32).reshape(self.shape)

    def predict(self, x: Any) -> Any:
        return self.session.run(None, {self.name: x})[0]

    def encode_response(self, output: Any) -> Response:
        return Response(output.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    server = ls.LitServer(Api(), accelerator="cpu", timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
