"""The common part of the methods with the paper's gate: its place before the optimizer, its memory and decisions."""

import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from sfao.gate import Gate
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.optimizer import SFAO


class GatedMethod(Method):
    """SFAO, which is SGD behind the gate; or the gate, attached to another optimizer."""

    gate: Gate

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        if isinstance(self.optimizer, SFAO):
            self.gate = self.optimizer.gate
        else:
            self.gate = Gate(model, seed=training.seed, **self.gate_options()).attach(self.optimizer)

    def make_optimizer(self, parameters: Iterable[Tensor] | None = None, **changes: Any) -> Optimizer:
        if not self.training.is_descent:
            return super().make_optimizer(parameters, **changes)
        descent = {name: getattr(self.training, name) for name in ("lr", "momentum", "momentum_form", "weight_decay")}
        return SFAO(self.model, **descent, seed=self.training.seed, **self.gate_options())

    def gate_options(self) -> dict[str, Any]:
        """Return the options of :class:`sfao.Gate`."""
        raise NotImplementedError

    def consolidate(self, *args: Any, **kwargs: Any) -> None:
        """Store directions of a finished task; layers that they span are `concerns` instead of a warning."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the directions of these layers", RuntimeWarning)
            self.gate.consolidate(*args, **kwargs)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the stored directions, without the room that is allocated for more."""
        memories = [layer.memory for layer in self.gate.layers]
        return sum(tensor.nbytes for memory in memories for part in memory.parts for tensor in part.held)

    @property
    def directions(self) -> int:
        return max(len(layer.memory) for layer in self.gate.layers)

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        return self.gate.counts

    @property
    def layer_telemetry(self) -> dict[str, dict[str, float]]:
        found = {"cosine": self.gate.last_cosines, "kept": self.gate.kept()}
        return {
            layer: {name: values[layer] for name, values in found.items() if layer in values} for layer in found["kept"]
        }

    def spanned_layers(self) -> Iterable[str]:
        """Yield the names of layers whose directions span all of their parameters: no gradient gets through."""
        return (layer.name for layer in self.gate.layers if layer.memory.spans_everything())
