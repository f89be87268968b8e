"""What a layer is: its class, its schema, its parameters, and how an operator is bound to it."""
