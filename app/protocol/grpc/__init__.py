"""The Open Inference Protocol over gRPC: its messages, converted to what app/protocol/v2 defines.

inference.proto    messages and service, written from the specification
health.proto       gRPC's own health protocol
descriptors.binpb  both, compiled by protoc (make descriptors)
schema             classes of messages, parameters and settings
infer              ModelInferRequest and ModelInferResponse, with their tensors without copies
"""
