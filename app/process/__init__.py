"""The process around the app: ``server`` runs it with a banner and a drain, ``workers`` several of it on one socket.

switchboard and team carry commands from one worker to all, peers and board what workers tell of each other.
porch answers until the server is there, standby says which worker takes connections, descriptors lifts limits of the
system, tls reads certificates.
"""
