"""The service: models served over HTTP and gRPC.

process -> http, grpc -> serving -> models -> engine: server processes, protocols, operations on models, and models.
Beside these: codec (bodies <-> arrays), images, tasks (outputs -> predictions), protocol (messages of the Open
Inference Protocol), scheduling, memory, render (graphs as drawings), trials and measuring, remote (stores), cli
(``pnnx-serve``).
"""
