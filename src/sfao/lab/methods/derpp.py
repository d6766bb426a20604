"""Dark experience replay ++ (Buzzega et al. 2020): examples are stored with their labels and the outputs they had.

The loss is that of the batch + answers |f(x') - z'|^2 + labels cross-entropy(f(x''), y''), with two draws x' and x'' of
stored examples, z' all outputs of the model when x' was learned first, and means over examples (and outputs).
"""

from typing import ClassVar

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from sfao.lab.methods.er import ER, ReplayOptions
from sfao.lab.methods.search_range import Range, SearchSpace


class DERPPOptions(ReplayOptions):
    answers: float = Field(
        1.0, ge=0, description="Weight of the squared distance to stored logits; 1 in the authors' Permuted MNIST."
    )
    labels: float = Field(
        0.5, ge=0, description="Weight of the loss on stored labels; 0.5 to 1 in the authors' scripts."
    )


class DERPP(ER):
    name = "derpp"
    Options = DERPPOptions
    options: DERPPOptions
    search_space: ClassVar[SearchSpace] = {"answers": Range(0.1, 2, log=True), "labels": Range(0.1, 2, log=True)}

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        logits: Tensor = self.model(inputs)
        loss = cross_entropy(logits[:, outputs], targets)
        if len(self.memory):
            past, stored = self.memory.draw_with_logits(self.replayed)
            loss = loss + self.options.answers * mse_loss(self.model(past), stored)
            loss = loss + self.options.labels * self.memory.draw(self.replayed).loss(self.model)
        loss.backward()
        self.update(outputs)
        self.memory.add(inputs, targets, outputs, logits)
        return loss.detach()
