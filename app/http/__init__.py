"""What speaks HTTP: connections and their limits, bodies, routes, answers, and the document that describes them."""
