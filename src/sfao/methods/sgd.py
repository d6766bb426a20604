"""Gradient descent and nothing else: what forgetting looks like."""

from typing import ClassVar

from sfao.methods.method import Method


class SGD(Method):
    name: ClassVar[str] = "sgd"
