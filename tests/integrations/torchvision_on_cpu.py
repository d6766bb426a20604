"""Let a torchvision that was built for CUDA be imported beside a torch for CPUs.

Such a torchvision cannot load its own operators, and fails where it describes two of them. `make test-integrations`
copies this file into its environment, with a .pth file that imports it when Python starts. It declares the two
operators right before torchvision is imported, and imports nothing until then.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class DeclareOperators:
    """A finder that finds nothing, and is asked before torchvision is imported."""

    def __init__(self) -> None:
        #: A library that is collected takes its operators with it.
        self.library: object = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "torchvision" and self.library is None:
            import torch

            self.library = library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


sys.meta_path.insert(0, DeclareOperators())
