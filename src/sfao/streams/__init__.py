"""Streams of tasks made of a dataset, by the scenario and the seed."""
