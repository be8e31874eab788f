"""Speed, measured against a named peer in one run: ``python -m benchmarks.NAME [--quick]``."""
