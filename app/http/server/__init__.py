"""HTTP/1.1 on one connection: bytes to requests, requests to answers, within limits. uvicorn has the sockets and TLS.

states        the states of a connection, as two tables
connections   limits, and all connections of a process: which are let in, which make room, the look at all of them
messages      the heads of requests and answers: the parser, and what is wrong with what it finds
connection    one connection: what comes goes to the request at hand, its answer goes out
inference     requests to run a model
asgi          every other request, handed to the ASGI application

A connection has one request at a time: bytes behind it are not parsed before it is answered. So no answer can go to
another request than its own; `Connection.owns` is asked before each write. See docs/decisions/002-one-request-path.md.
"""
