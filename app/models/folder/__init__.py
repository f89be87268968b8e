"""Files of a store: layout, config.toml, and detection of changes."""
