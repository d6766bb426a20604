"""A model as one task sees it."""

from torch import Tensor, nn


class TaskView(nn.Module):
    """The outputs of a model for one task; a module, so that eval mode reaches the model."""

    def __init__(self, model: nn.Module, outputs: slice) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs)
        return logits[:, self.outputs]
