"""Kernels that were measured against each other on this machine: tuner (what is remembered), stopwatch (how)."""
