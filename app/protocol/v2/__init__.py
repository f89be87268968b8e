"""The Open Inference Protocol, version 2, with Triton's extensions, whatever carries it (app/http/v2, gRPC).

request       bytes of a request -> what it says
inputs        what it says -> tensors, held against the model
run           what it says -> what its model is to do
outputs       results -> bytes of an answer
ports         what the protocol calls a model's inputs and outputs, and their shapes
datatypes     FP32, INT64, BYTES, ... <-> dtypes
lookup        which model it means
metadata      what a server and its models are
figures       what they have done
"""
