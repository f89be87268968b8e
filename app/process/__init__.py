"""The process around the app: ``server`` builds and runs it, ``workers`` runs several of it on one socket.

uvicorn_server     its start and its end: banner, drain
listening          the socket, bound before the server is imported
readiness_of            which worker takes connections
broadcast        the parent's side of commands that go to all workers; channel: a worker's side
ipc, scoreboard  what workers share: their figures, in memory that all of them see
calls              gRPC beside HTTP
descriptors, tls   limits of the system lifted, certificates read
"""
