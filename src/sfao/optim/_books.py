"""The books of a gate: all that it knows of its layers, to go back to when a change to them fails."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sfao.optim._whole_or_not import undo_on_error
from sfao.optim.layers import Layer

if TYPE_CHECKING:
    from sfao.optim.gate import Gate

T = TypeVar("T")

#: Attributes of a layer and of a gate that are replaced when they change.
OF_LAYER = (
    "memory",
    "spaces",
    "travel",
    "space_version",
    "was_warned_of",
    "options",
    "counts",
    "rule_state",
    "memories",
    "rule",
    "checked_options",
    "rule_numbers",
)
OF_GATE = ("task", "param_groups", "memory_plan", "softening", "_path", "_unseen", "_decision_check", "_postponed")


class Books:
    """The books of a gate as they were."""

    def __init__(self, gate: "Gate") -> None:
        self._gate = gate
        self._of_gate = {name: getattr(gate, name) for name in OF_GATE}
        self._of_layers = [(layer, _read(layer)) for layer in gate.layers]
        self._journals = [layer.memory.begin_journal() for layer in gate.layers]

    def restore(self) -> None:
        """Let the gate be as it was."""
        for layer, values in self._of_layers:
            for name, value in values.items():
                setattr(layer, name, dict(value) if name == "counts" else value)
        for name, value in self._of_gate.items():
            setattr(self._gate, name, value)
        for journal in self._journals:
            journal.restore()
        self.end()

    def end(self) -> None:
        """Copy no more of what is overwritten."""
        for layer, values in self._of_layers:
            values["memory"].end_journal()
            layer.memory.end_journal()


def _read(layer: Layer) -> dict[str, Any]:
    values = {name: getattr(layer, name) for name in OF_LAYER}
    return {**values, "counts": dict(layer.counts)}


class Momentum:
    """The momentum of an optimizer, which a task ends with; undone, it is what it was."""

    def __init__(self, state: Mapping[Any, dict[str, Any]]) -> None:
        self._buffers = [(of, of["momentum_buffer"]) for of in state.values() if "momentum_buffer" in of]

    def end(self) -> None:
        for of_parameter, _ in self._buffers:
            of_parameter.pop("momentum_buffer", None)

    def undo(self) -> None:
        for of_parameter, buffer in self._buffers:
            of_parameter["momentum_buffer"] = buffer


def change_books(gate: "Gate", work: Callable[[], T], undo: Callable[[], object] | None = None) -> T:
    """Return what `work` returns; if it fails or is interrupted, the books of the gate are as they were, and `undo`."""
    books = Books(gate)

    def change() -> T:
        done = work()
        books.end()
        return done

    def restore() -> None:
        if undo is not None:
            undo()
        books.restore()

    return undo_on_error(change, restore)
