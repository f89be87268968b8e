"""The service over HTTP.

A request passes, in this order:

server         its connection: limits and parser; requests that run a model are answered there
middleware     for other requests: ids, the log line, and errors
access         whether the client may send this request
routes, v2     the service's own routes, and those of the Open Inference Protocol
body           reads the body within limits
responses      the answer

model_request describes a request that runs a model; server and routes answer it with the same functions. main builds
the app, openapi its documentation.
"""
