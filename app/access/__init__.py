"""Who may do what. Nothing here knows HTTP.

groups    what requests are for
keyring   keys, and the groups each is good for
keys      where they come from, and that a file of them may change
"""
