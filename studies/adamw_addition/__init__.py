"""What AdamW on modular addition does to C, to a refitted head, and to a forecast."""
