"""Tests of programs whose sizes are symbolic."""
