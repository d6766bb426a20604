"""Everything about a run: its configuration, training, evaluation, interruption, resumption and record."""
