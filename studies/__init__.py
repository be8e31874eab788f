"""Experiments: each folder holds the question, the command, the records and the answer."""
