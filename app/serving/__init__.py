"""Operations of the service, independent of HTTP and gRPC.

dataplane   inference, metadata, readiness, graphs
control     commands that change all workers of a server, and loading and unloading of models
"""
