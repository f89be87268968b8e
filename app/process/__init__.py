"""Server processes: ``server`` builds and runs one, or several on one socket.

uvicorn_server  start and shutdown of a process: the text it prints, listening, draining
sockets         the listening socket, bound before the server is imported, TLS, and gRPC beside HTTP
worker_ipc      commands that all workers execute
workers         supervision of several processes; their metrics and readiness, in shared memory
"""
