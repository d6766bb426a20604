"""Capture of many small kernels as one CUDA graph."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch


def capture(work: Callable[[], object], device: torch.device) -> Any:
    """Run `work` once, then capture it; return an object with a method `replay`. Nothing waits for the device.

    On other devices than CUDA, `replay` runs the work again.
    """
    if device.type != "cuda":
        work()
        return SimpleNamespace(replay=work)
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
