"""The process around the app: workers, limits of the system, and what is printed at the start."""
