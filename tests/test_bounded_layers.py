"""Layers as stacks of matrices: their input rows times their weights are their outputs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfao.bounded_layers import clean_name, find_layers
from sfao.drift_memory import row_energies

CONVOLUTIONS: list[tuple[type[nn.Module], dict[str, Any]]] = [
    (nn.Conv1d, {}),
    (nn.Conv1d, {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    (nn.Conv1d, {"padding": "same", "padding_mode": "reflect"}),
    (nn.Conv2d, {"bias": False}),
    (nn.Conv2d, {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}),
    (nn.Conv2d, {"groups": 4, "out": 8}),
    (nn.Conv2d, {"groups": 4, "out": 4, "padding": 1}),
    (nn.Conv2d, {"groups": 2, "padding": "same", "dilation": 2}),
    (nn.Conv2d, {"kernel": (2, 3), "padding": "same"}),
    (nn.Conv2d, {"padding": "valid"}),
    *[(nn.Conv2d, {"padding": (2, 1), "padding_mode": mode}) for mode in ("circular", "reflect", "replicate")],
    (nn.Conv2d, {"kernel": (4, 3), "padding": "same", "padding_mode": "circular"}),
    (nn.Conv3d, {"stride": 2, "padding": 1, "groups": 2}),
    (nn.Conv3d, {"padding": 1, "padding_mode": "replicate"}),
]


def make_convolution(kind: type[nn.Module], options: dict[str, Any]) -> tuple[nn.Module, Tensor]:
    """Return a convolution of 4 channels and inputs for it."""
    options = {"kernel": 3, "out": 6, **options}
    kernel, out = options.pop("kernel"), options.pop("out")
    dims = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}[kind]
    return kind(4, out, kernel, **options), torch.randn(3, 4, *range(7, 7 + dims))


def energy_of_rows(module: nn.Module, *inputs: Tensor, limit: int = 10**6) -> float:
    """Return E |W x|^2 from the input rows that the layer finds."""
    (layer,) = find_layers(module).values()
    rows = layer.input_rows(inputs[0], limit, torch.Generator().manual_seed(0))
    return float(row_energies(layer.read(), rows).sum())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("kind", "options"), CONVOLUTIONS)
@torch.no_grad()
def test_rows_of_convolutions(kind: type[nn.Module], options: dict[str, Any]) -> None:
    module, x = make_convolution(kind, options)
    outputs = module(x).transpose(0, 1).flatten(1)
    assert energy_of_rows(module, x) == pytest.approx(float(outputs.square().mean(1).sum()), rel=1e-4)
    assert energy_of_rows(module, x[:1]) == pytest.approx(energy_of_rows(module, x[0]))


@pytest.mark.parametrize(
    ("module", "shape", "channels"),
    [
        (nn.Linear(5, 3), (7, 5), -1),
        (nn.Linear(5, 3, bias=False), (2, 7, 5), -1),
        (nn.Linear(5, 3), (5,), -1),
        (nn.BatchNorm1d(4), (6, 4), 1),
        (nn.BatchNorm1d(4), (6, 4, 3), 1),
        (nn.BatchNorm2d(4), (6, 4, 3, 2), 1),
        (nn.BatchNorm3d(4), (6, 4, 3, 2, 2), 1),
        (nn.BatchNorm2d(4, track_running_stats=False), (6, 4, 3, 2), 1),
        (nn.LayerNorm(4), (6, 3, 4), -1),
        (nn.LayerNorm(4, bias=False), (6, 4), -1),
        (nn.GroupNorm(2, 4), (6, 4, 5), 1),
    ],
)
@torch.no_grad()
def test_rows_of_other_layers(module: nn.Module, shape: tuple[int, ...], channels: int) -> None:
    x = 2 * torch.randn(shape) + 1
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) and module.running_mean is not None:
        module(x)  # moves the statistics
    outputs = module.eval()(x).movedim(channels, 0).flatten(1 if x.ndim > 1 else 0)
    expected = outputs.square().sum() / (outputs[0].numel() if x.ndim > 1 else 1)
    assert energy_of_rows(module, x) == pytest.approx(float(expected), rel=1e-4)


@torch.no_grad()
def test_rows_of_an_embedding() -> None:
    module, x = nn.Embedding(9, 4), torch.tensor([[1, 1, 5], [2, 1, 8]])
    assert energy_of_rows(module, x) == pytest.approx(float(module(x).square().sum(-1).mean()))


def test_drawn_rows_have_about_the_energy_of_all() -> None:
    module, x = nn.Conv2d(4, 6, 3), torch.randn(50, 4, 10, 10)
    (layer,) = find_layers(module).values()
    rows = layer.input_rows(x, 500, torch.Generator().manual_seed(0))
    assert rows.shape == (1, 500, 37)
    assert energy_of_rows(module, x, limit=500) == pytest.approx(energy_of_rows(module, x), rel=0.1)


def test_used_rows_are_those_with_a_gradient() -> None:
    for module, shape, dim in (
        (nn.Linear(5, 3), (2, 3), 1),
        (nn.Linear(5, 3), (3,), 0),
        (nn.Conv1d(2, 3, 1), (2, 3, 4), 1),
    ):
        (layer,) = find_layers(module).values()
        gradient = torch.zeros(shape)
        gradient.select(dim, 1).fill_(1e-30)
        assert layer.used_rows(gradient).tolist() == [False, True, False]


def test_layers_of_a_model() -> None:
    model = nn.Sequential(
        nn.Linear(2, 2),
        nn.Linear(2, 2).requires_grad_(False),
        nn.Conv1d(2, 2, 1),
        nn.BatchNorm1d(2, affine=False),
        nn.Embedding(3, 2, max_norm=1.0),
        nn.InstanceNorm1d(2, affine=True),
        nn.Bilinear(2, 2, 2),
        nn.LazyLinear(3),
    )
    model[2].bias.requires_grad_(False)
    layers = find_layers(model)
    assert list(layers) == ["0", "2"]
    assert [len(layers[name].parameters) for name in ("0", "2")] == [2, 1]
    assert list(find_layers(model, {"1": 3, "2": 3})) == ["0", "1", "2"]
    assert [len(find_layers(model, {"1": 3, "2": 3})[name].parameters) for name in ("1", "2")] == [2, 2]


def test_names_have_no_wrappers() -> None:
    assert clean_name("_orig_mod.layer._checkpoint_wrapped_module.fc") == "layer.fc"
    assert list(find_layers(nn.Linear(2, 2))) == ["(root)"]
