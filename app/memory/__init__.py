"""Memory of the server.

reservation   bytes that all requests, and each of them, may hold
machine       the heap, the garbage collector, and memory that is returned to the system
"""
