"""Triton decides when it is first imported whether it interprets: that import must come before any other of it."""

from tests import on_device

__all__ = ["on_device"]
