"""The mathematics of the gate: decisions, cosines, projections and memories. No optimizer in sight."""
