"""Memory: what requests may take together, and what each of them has of it (budget).

machine gives back to the system what is no longer used; collector sets aside what lives as long as the server.
"""
