"""The Open Inference Protocol over HTTP: paths, headers and statuses. app/protocol/v2 defines the messages.

app has the table of routes; infer runs models.
"""
