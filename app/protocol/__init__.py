"""Protocols of others: between their messages and the data plane, without what carries them."""
