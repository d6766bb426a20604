"""Data sets: descriptions, readers of the publishers' files, a cache of arrays, downloads and verification."""
