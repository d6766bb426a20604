"""Models for stacks: one with statistics of its batches, one that draws random numbers."""

from math import prod

from torch import nn


def with_batch_norm(input_shape, outputs):
    first = nn.Linear(prod(input_shape), 12)
    return nn.Sequential(nn.Flatten(), first, nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs))


def with_dropout(input_shape, outputs):
    first = nn.Linear(prod(input_shape), 12)
    return nn.Sequential(nn.Flatten(), first, nn.Dropout(0.3), nn.ReLU(), nn.Linear(12, outputs))
