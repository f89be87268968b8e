"""The service over HTTP.

A request meets, in this order:

server         its connection: limits, the parser, and the answer to a request that runs a model
edge           of other requests: ids, the log line, and the last word on errors
access         whether this client may ask for this
routes, v2     the service's own routes, and those of the Open Inference Protocol
body, accept   the body into memory, within limits; which form of answer is wanted
responses      the answer

A request that runs a model is described by order.py; server and routes answer it with the same functions. main wires
all of it to an app; openapi is the document that describes it.
"""
