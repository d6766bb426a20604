"""A path: how the gradients of all layers are gated, one after the other on the host or together on a device."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from sfao.gating.decision import Decision

if TYPE_CHECKING:
    from sfao.optim._softening import Softening

T = TypeVar("T")

#: Where kernels run. (Under Triton's interpreter they run on a CPU, which is how they are tested without a GPU.)
DEVICES = {"cuda"}


class NonFiniteGradient(ValueError):  # noqa: N818, it names what was found
    """A gradient with an entry that is no number: training has diverged."""


@dataclass(frozen=True)
class Report:
    """The decision, the cosine that decided, and the norm of the gradient, by layer."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    cosines: dict[str, float] = field(default_factory=dict)
    norms: dict[str, float] = field(default_factory=dict)
    #: Of layers that remember their inputs: the share of the gradient's length that was left, and the drift.
    kept: dict[str, float] = field(default_factory=dict)
    drifts: dict[str, float] = field(default_factory=dict)


class RetiredGate(Protocol):
    """A gate on a device whose memories have changed, but which a captured graph may still run."""

    stale: Tensor


class PathHistory:
    """Facts that a path hands on to the next: reasons that were given once, and gates that graphs may still run."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.retired: list[RetiredGate] = []

    def check_stale(self) -> None:
        """Raise a RuntimeError if a graph was replayed that runs a retired gate."""
        stale = [gate.stale for gate in self.retired if bool(gate.stale)]
        for flag in stale:
            flag.zero_()
        if stale:
            raise RuntimeError(
                "a CUDA graph must be captured again when the memory has changed, but one from before was replayed; "
                "those steps changed nothing"
            )


class Path(Protocol):
    """Gates the layers it was made for, for as long as it `serves`."""

    history: PathHistory
    #: True while something is known to a device alone.
    is_open: bool

    def serves(self) -> bool:
        """Tell whether the gradients of this step can be gated this way; another path is chosen if not."""

    def step(self, softening: "Softening | None") -> Tensor | None:
        """Turn the gradient of every layer into its update, in place, softened first if there is a softening.

        The flag that a device returns is false, there, if a gradient was not finite and all updates were made zero.
        """

    def note(self, softening: "Softening") -> None:
        """Count and report what a softening has done to the updates of the last step."""

    def work_whole(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; memories are whole meanwhile, where others hold parts of them."""

    def report(self) -> Report:
        """Return the report of the last step; waits for a device."""

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the decisions so far, {layer: {accept, project, discard, zero}}; waits for a device."""

    def close(self) -> None:
        """Bring back what only a device knows and let go of what it holds: the memories are about to change."""

    def abandon(self) -> None:
        """Let go of what a device holds, and of what only it knows."""


def is_capturing() -> bool:
    """Tell whether launches are not done, but recorded in a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def make_capture_error() -> RuntimeError:
    return RuntimeError(
        "a step that is captured in a CUDA graph must be like the one before, on the GPU: "
        "take a few steps first, and capture again whenever the memory or an option has changed"
    )
