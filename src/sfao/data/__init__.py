"""Datasets: what is known of each, reading, caching and fetching their files."""
