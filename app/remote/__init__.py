"""Stores that are fetched: from S3, from Google Cloud Storage, from a web server.

What is fetched is checked against a digest where there is one, kept by its content, and put in the place of what was
there before as a whole. To the rest of the service a remote store is a folder like any other (docs/remote-stores.md).
"""
