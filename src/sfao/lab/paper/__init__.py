"""The paper's tables beside our own numbers: what is run for them, what comes out, and where theirs come from."""
