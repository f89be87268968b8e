"""Past one machine: what makes the service part of an engine for clusters. Nobody else imports it."""
