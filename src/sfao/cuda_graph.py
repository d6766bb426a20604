"""Capture of many small kernels as one CUDA graph."""

from collections.abc import Callable
from typing import Any

import torch


class Eager:
    """Runs the work again where there are no graphs, as on a CPU."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.replay = work


def capture(work: Callable[[], object], device: torch.device) -> Any:
    """Run `work` once, then capture it; return an object with a method `replay`. Nothing waits for the device."""
    if device.type != "cuda":
        work()
        return Eager(work)
    current, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(current)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        work()  # warms up the libraries
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        work()
        graph.capture_end()
    current.wait_stream(stream)
    return graph
