"""Prometheus metrics: their definitions, where they are collected, how those of workers are merged, and the page."""
