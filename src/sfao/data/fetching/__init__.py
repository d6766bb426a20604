"""How the files get here: what is published where, downloads, archives, digests."""
