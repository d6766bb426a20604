"""Settings chosen on validation data: by a grid, or by a search that learns from its trials."""
