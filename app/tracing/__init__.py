"""What tells of one request, whatever carried it: its id, the trace it belongs to, where its time went."""
