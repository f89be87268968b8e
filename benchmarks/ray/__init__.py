"""What Ray Serve costs, and what it saves: see __main__.py."""
