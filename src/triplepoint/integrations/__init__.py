"""Monitors in the loops that people use: each file is a thin shell, imported where it is used."""
