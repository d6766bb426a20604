"""What is known of a dataset before it is read: how much was published, where it may lie. Needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sfao.data.errors import MissingData
from sfao.data.formats import cifar, idx, tiny_imagenet
from sfao.data.formats.layout import Layout


@dataclass(frozen=True)
class Description:
    classes: int
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: How it may lie under a data root, the first choice first; empty for what is embedded.
    layouts: Callable[[Path], list[Layout]]


# MNIST is not normalised, as in the paper's released code.
UNCHANGED = {"mean": (0.0,), "std": (1.0,)}

DESCRIPTIONS = {
    "mnist-5k": Description(10, 4000, 1000, **UNCHANGED, layouts=lambda root: []),
    "mnist": Description(10, 60000, 10000, **UNCHANGED, layouts=idx.layouts),
    # Mean and standard deviation of all training pixels.
    "cifar10": Description(
        10,
        50000,
        10000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        layouts=partial(cifar.layouts, cifar.CIFAR10),
    ),
    "cifar100": Description(
        100,
        50000,
        10000,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        layouts=partial(cifar.layouts, cifar.CIFAR100),
    ),
    # Those of ImageNet.
    "tiny-imagenet": Description(
        200,
        100000,
        10000,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        layouts=tiny_imagenet.layouts,
    ),
}


def find_layout(name: str, root: Path) -> Layout:
    """The first layout of which every file is there."""
    layouts = DESCRIPTIONS[name].layouts(root)
    for layout in layouts:
        if not layout.missing:
            return layout
    raise MissingData(f"{_not_found(name, layouts)}\nGet it with: sfao data get {name} --data-root {root}")


def _not_found(name: str, layouts: list[Layout]) -> str:
    begun = next((layout for layout in layouts if len(layout.missing) < len(layout.files)), None)
    if begun is not None:
        return f"`{name}` is not whole: {begun.folder} lacks {', '.join(path.name for path in begun.missing)}"
    return f"`{name}` was not found; looked in {', '.join(str(layout.folder) for layout in layouts)}"
