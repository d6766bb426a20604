"""Runs: configured, trained, evaluated, interrupted, resumed and recorded."""
