"""Getting, listing and verifying data sets: downloads, archives, digests."""
