"""The HTTP routes: parse, call, answer. Nothing here knows how a model runs."""
