"""Access control, independent of HTTP.

keyring   parsed keys, and the groups of requests each key allows
keys      keys from the settings, and from a file that is read again when it changes
"""
