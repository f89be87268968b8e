"""Cost and benefit of Ray Serve; see __main__.py."""
