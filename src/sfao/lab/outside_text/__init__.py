"""Text from outside: read within limits, and shown as text."""
