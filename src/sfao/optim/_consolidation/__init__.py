"""Storing directions of a finished task: its batches, the draw among them, their gradients, the store."""
