"""sfao in the training loops of other libraries: one file for each, which only that file imports."""
