"""Selective Forgetting-Aware Optimization: an optimizer that remembers what not to overwrite."""

from sfao.gating.decision import Decision
from sfao.optim.gate import Gate
from sfao.optim.layers import layer_groups
from sfao.optim.sfao import SFAO

__all__ = ["SFAO", "Decision", "Gate", "layer_groups"]
