"""What can 500 steps tell? Cells with their truth, and rules scored on them."""
