"""What lies in a store's folder: its layout, what a config.toml says, and how one file is told from another."""
