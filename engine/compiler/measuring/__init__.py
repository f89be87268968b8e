"""What this machine can do: short measurements (probes, rates), the host they describe (judging), kept (record)."""
