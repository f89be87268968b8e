"""Operations of the service, independent of HTTP and gRPC.

dataplane   inference, metadata, readiness, graphs
control     loading and unloading of models
commands    commands that change all workers of a server
"""
