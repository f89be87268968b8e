"""Remote stores: fetched from S3, Google Cloud Storage or a web server.

Fetched files are verified against a digest if there is one, stored by content, and published atomically. To the rest of
the service a remote store is a folder like any other (docs/remote-stores.md).
"""
