"""Ways to do many runs other than the pool of local processes: a Ray cluster."""
