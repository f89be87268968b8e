"""The Open Inference Protocol over HTTP: paths, headers and statuses; what messages mean, app/protocol/v2 knows.

app is asked first of all routes; table says which path is answered by infer, metadata (all that is asked) or control
(all that would change the server).
"""
