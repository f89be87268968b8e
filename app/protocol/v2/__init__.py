"""The Open Inference Protocol, version 2, with Triton's extensions, for HTTP (app/http/v2) and gRPC.

request           parsing of a request
inputs            a request converted to a run: its tensors, checked against the model
outputs           results encoded as an answer
ports             datatypes, and names and shapes of a model's inputs and outputs
operations        everything but inference, for both transports
shared_memory     registered shared-memory regions
runtime_settings  log and trace settings that clients may change
"""
