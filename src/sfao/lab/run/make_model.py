"""The model of a run, checked against the stream that it is to learn."""

import torch
from torch import Tensor, nn

from sfao.lab.models import build_model
from sfao.lab.run.config import ModelConfig
from sfao.lab.streams.stream import Stream


def make_model(config: ModelConfig, stream: Stream, seed: int) -> nn.Module:
    """Return the model with the weights of the seed; raise a ValueError if it cannot read the stream's inputs."""
    model = build_model(config.name, stream.input_shape, stream.outputs, seed, **config.sizes)
    inputs, _ = next(stream.tasks[0].test.batches(1))
    check_outputs(model, inputs, stream.outputs, config.name)
    return model


def check_outputs(model: nn.Module, inputs: Tensor, outputs: int, name: str) -> None:
    """Check that the model returns a row of so many outputs, or more, for one example; nothing of it changes."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"`model` {name!r} must have parameters to train, got none")
    modes = {module: module.training for module in model.modules()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            made = model.eval()(inputs)
    except Exception as error:  # a model of one's own may fail in any way
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        raise ValueError(f"`model` {name!r} must take inputs of shape {tuple(inputs.shape)}, got {said}") from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(made, Tensor) or made.dim() != 2 or len(made) != len(inputs):
        got = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise ValueError(f"`model` {name!r} must return one row of outputs for each example, got {got}")
    if made.shape[1] < outputs:
        raise ValueError(f"`model` {name!r} must have {outputs} outputs for the labels, got {made.shape[1]}")
