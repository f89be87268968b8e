"""Requests refused by their connection, before anything was made of them.

Where more come than can be answered, refusing must cost next to nothing.

gate       which requests to run a model would be refused anyway
visits     which requests a path may stand for, and how they are turned away
refused    one connection's refused requests
pacing     refusals held back, so that a client that asks again at once does not take the processor
sideline   connections of such clients, looked at later and all together
syscalls   many sockets read and written without giving the interpreter to another thread
"""
