"""The Open Inference Protocol over gRPC, with the extra ``[grpc]`` and the setting ``grpc_port``.

server   lifecycle, port and limits of the server, and gRPC's health protocol
call     one call, and what all calls have in common: request id, key, log line, errors
methods  all methods

Messages are in app/protocol/grpc. gRPC and HTTP share an event loop and a data plane.
"""
