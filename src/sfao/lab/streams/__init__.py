"""Streams of tasks cut from a data set, by the scenario and the seed."""
