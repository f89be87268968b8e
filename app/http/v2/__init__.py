"""The Open Inference Protocol over HTTP: paths, headers and statuses; what messages mean, app/protocol/v2 knows."""
