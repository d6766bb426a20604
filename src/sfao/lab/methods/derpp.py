"""Dark experience replay ++ (Buzzega et al. 2020): stored examples keep their labels and what was once answered."""

from typing import ClassVar

from pydantic import NonNegativeFloat
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from sfao.lab.methods.er import ER, ReplayOptions
from sfao.lab.methods.search_range import Range, SearchSpace


class DERPPOptions(ReplayOptions):
    #: The weight of the squared difference to the answers that were stored; 1 in the authors' Permuted MNIST.
    answers: NonNegativeFloat = 1.0
    #: The weight of the loss on the labels that were stored; 0.5 to 1 in the authors' scripts.
    labels: NonNegativeFloat = 0.5


class DERPP(ER):
    """Adds two terms to the loss of a batch, each of stored examples drawn for it, in passes of their own.

    An answer is all outputs of the model, those of other tasks too, when it learnt from the example first.
    """

    name = "derpp"
    Options = DERPPOptions
    options: DERPPOptions
    search_space: ClassVar[SearchSpace] = {"answers": Range(0.1, 2, log=True), "labels": Range(0.1, 2, log=True)}

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        logits: Tensor = self.model(inputs)
        loss = cross_entropy(logits[:, outputs], targets)
        if len(self.memory):
            past, answered = self.memory.draw_with_logits(self.replayed)
            loss = loss + self.options.answers * mse_loss(self.model(past), answered)
            loss = loss + self.options.labels * self.memory.draw(self.replayed).loss(self.model)
        loss.backward()
        self.optimizer.step()
        self.memory.add(inputs, targets, outputs, logits)
        return loss.detach()
