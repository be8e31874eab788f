"""A phase map: its plan is map.toml."""
