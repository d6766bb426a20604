"""The names of the datasets, and an error that suggests the nearest one."""

from difflib import get_close_matches

NAMES = ("mnist-5k", "mnist", "cifar10", "cifar100", "tiny-imagenet")


def check_name(name: str) -> None:
    if name not in NAMES:
        close = get_close_matches(name, NAMES, n=1)
        nearest = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"`name` must be one of {', '.join(NAMES)}, got {name!r}{nearest}")
