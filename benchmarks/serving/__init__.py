"""What a request costs beside its model: processor time and waiting, as multiples of an app that does nothing."""
