"""The Open Inference Protocol over gRPC: its messages, and what of app/protocol/v2 they say.

inference.proto  the messages and the service, written from the specification; health.proto: gRPC's own
descriptors.binpb  what protoc makes of the two (make descriptors)
schema           descriptors -> classes of messages
wire             tensors out of a request's bytes, and into an answer's, without copies on the way
infer            a request's bytes -> what it says; results -> an answer's bytes
parameters       values of any kind, and settings
control          everything else that can be asked for
"""
