"""Operations of the service, independent of HTTP and gRPC.

dataplane   inference, metadata, readiness
drawings    graphs that are drawn once for all clients that ask at the same time
control     loading and unloading of models
commands    commands that change all workers of a server
"""
