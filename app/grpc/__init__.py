"""The Open Inference Protocol over gRPC, for those who install the extra ``[grpc]`` and name a ``grpc_port``.

server      a server's life, its port, its limits
methods     which method does what
infer       ModelInfer and ModelStreamInfer
reception   what every call goes through: its id, its key, its line of the log, what it is told of a failure
call        one call
status      errors -> gRPC's codes

Messages are in app/protocol/grpc. gRPC runs on the event loop that HTTP runs on: there is one data plane for both.
"""
