"""The service's own routes: parse, call the data plane, answer."""
