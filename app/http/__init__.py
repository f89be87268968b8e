"""What speaks HTTP. A request meets, in this order:

door, connection      who may come in; bounds on what is sent, and how slowly
edge                  its id, its log line, and the last word on errors
access                whether it may be asked for, by whom
routes, v2            the service's own routes, and those of the Open Inference Protocol
body, accept          its body into memory, within limits; which answer it wants
responses             the answer

main wires all of it to an app; openapi is the document that describes it.
"""
