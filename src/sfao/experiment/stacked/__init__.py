"""Runs that make their steps together, as one stack."""
