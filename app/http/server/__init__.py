"""HTTP/1.1 on one connection: parsing, limits, and answers. uvicorn owns the sockets and TLS.

states        states of a connection, as a table
connections   limits, and all connections of a process: admission, eviction, timeouts
messages      heads of requests and answers, and their parser
connection    one connection: received bytes go to the current request, its answer goes out
inference     requests that run a model
asgi          all other requests, passed to the ASGI application

A connection has one request at a time: bytes after it are not parsed before it is answered. So no answer can go to
another request; `Connection.owns` is checked before each write. See docs/decisions/002-one-request-path.md.
"""
