"""Kernel tuning by measurement on this machine: tuner (selection and stored results), stopwatch (timing)."""
