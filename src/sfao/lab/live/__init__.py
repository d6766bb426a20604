"""The page of `sfao run --live`: a run while it trains."""
