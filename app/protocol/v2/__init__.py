"""The Open Inference Protocol, version 2, with Triton's extensions, for HTTP (app/http/v2) and gRPC.

request           parsing of a request
inputs            tensors of a request, checked against the model
inference         a request converted to a run of its model
outputs           results encoded as an answer
ports             datatypes, and names and shapes of a model's inputs and outputs
lookup            the model of a request, and statistics
metadata          metadata of the server and its models, and the model repository
shared_memory     registered shared-memory regions
runtime_settings  log and trace settings that clients may change
"""
