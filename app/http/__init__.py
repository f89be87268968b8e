"""What speaks HTTP. A request meets, in this order:

connection     one client's connection: who may connect, bounds on what is sent, and how slowly
refusing       requests that a full queue would refuse anyway, refused before the app sees them
fast_path      requests whose head was parsed before, answered without the parser and ASGI
edge           request ids, the log line, and the last word on errors
access         whether this client may ask for this
routes, v2     the service's own routes, and those of the Open Inference Protocol
body, accept   the body into memory, within limits; which form of answer is wanted
responses      the answer

wire has what the first three share: bytes read from a socket and written to it without ASGI. main wires all of it to an
app; openapi is the document that describes it.
"""
