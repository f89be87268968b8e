"""Cost of a request beside its model: processor time and waits, as multiples of an app that does nothing."""
