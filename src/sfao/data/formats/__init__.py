"""How the publishers wrote their files: one reader a format."""
