"""Data sets: one description per file in `sets`; their files are read, cached, fetched and verified from there."""
