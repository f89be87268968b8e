"""The service's own routes: parse, call the data plane, answer. Nothing here knows how a model runs."""
