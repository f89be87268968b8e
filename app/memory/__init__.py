"""Memory of the server.

budget        bytes that all requests may hold together
reservation   bytes that one request holds
machine       the heap, the garbage collector, and memory that is returned to the system
"""
