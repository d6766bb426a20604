"""The ends of softness: `keep=0` projects off all axes, as GPM does, `keep=1` leaves gradients alone; given axes."""

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, layer_groups
from tests.optim.problem import task, trained, weights

SHAPES = {
    "linear": lambda bias: nn.Linear(7, 5, bias=bias),
    "conv": lambda bias: nn.Conv2d(3, 4, 3, bias=bias),
    "grouped": lambda bias: nn.Conv2d(4, 6, (1, 3), groups=2, bias=bias),
    "one output": lambda bias: nn.Linear(6, 1, bias=bias),
}


def orthonormal_rows(count: int, width: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(width, width, dtype=torch.float64)).Q[:, :count].T


def width_of(layer: nn.Module) -> int:
    return layer.weight[0].numel() + (layer.bias is not None)


def give_gradients(layer: nn.Module, scale: float = 1.0, channels_last: bool = False) -> torch.Tensor:
    """Set random gradients, the first also channels last; return them as the rows of [dW | db]."""
    for parameter in layer.parameters():
        parameter.grad = torch.randn_like(parameter) * scale
    if channels_last:
        layer.weight.grad = layer.weight.grad.to(memory_format=torch.channels_last)
    return read_rows(layer)


def read_rows(layer: nn.Module) -> torch.Tensor:
    return torch.cat(
        [
            parameter.grad.flatten(1) if parameter.ndim > 1 else parameter.grad[:, None]
            for parameter in layer.parameters()
        ],
        1,
    )


def make(layer: nn.Module, axes: torch.Tensor, **options) -> SFAO:
    optimizer = SFAO(layer_groups(layer), lr=0.1, memory="subspace", **options)
    optimizer.gate.set_axes({"(root)": axes})
    return optimizer


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", SHAPES.values(), ids=SHAPES)
def test_a_hard_projection_is_orthogonal_to_all_axes_and_changes_nothing_else(layer, bias, scale):
    torch.manual_seed(0)
    layer = layer(bias)
    width = width_of(layer)
    for count in (1, 3, width - 1):
        axes = orthonormal_rows(count, width)
        optimizer = make(layer, axes, keep=0, restore=1)
        gradient = give_gradients(layer, scale).double()
        optimizer.step()
        update = read_rows(layer).double()
        assert (update @ axes.T).abs().max() <= 1e-6 * gradient.norm()
        assert torch.allclose(update, gradient - gradient @ axes.T @ axes, rtol=0, atol=1e-6 * float(gradient.norm()))
        assert optimizer.last_decisions == {"(root)": Decision.PROJECT}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", SHAPES.values(), ids=SHAPES)
def test_a_complete_basis_leaves_exactly_nothing(layer, bias):
    torch.manual_seed(0)
    layer = layer(bias)
    optimizer = make(layer, orthonormal_rows(width_of(layer), width_of(layer)), keep=0, restore=1)
    before = weights(layer)
    give_gradients(layer)
    optimizer.step()
    assert not read_rows(layer).any()
    assert torch.equal(weights(layer), before)
    assert optimizer.last_decisions == {"(root)": Decision.DISCARD}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", SHAPES.values(), ids=SHAPES)
def test_keeping_everything_leaves_gradients_alone_to_the_bit(layer, bias):
    torch.manual_seed(0)
    layer = layer(bias)
    for count in (1, 3, width_of(layer)):
        optimizer = make(layer, orthonormal_rows(count, width_of(layer)), keep=1, restore=3)
        gradient = give_gradients(layer)
        optimizer.step()
        assert torch.equal(read_rows(layer), gradient)
        assert optimizer.last_decisions == {"(root)": Decision.ACCEPT}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_keeping_everything_does_so_by_consolidated_moments_of_any_size(dtype):
    """Importances of thousands: no softness of a finite size would do."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    optimizer = SFAO(layer_groups(layer), lr=0.1, keep=1.0)
    inputs = torch.randn(50, 6) * torch.tensor([1e5, 1.0, 1.0, 1e-3, 1.0, 1.0])
    optimizer.consolidate(layer, [(inputs, torch.zeros(50))])
    layer.to(dtype)
    gradient = give_gradients(layer)
    optimizer.step()
    assert torch.equal(read_rows(layer), gradient)


def test_axes_follow_gradients_that_lie_channels_last():
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3)
    axes = orthonormal_rows(5, 28)
    optimizer = make(layer, axes, keep=0, restore=1)
    gradient = give_gradients(layer, channels_last=True).double()
    optimizer.step()
    assert torch.allclose(read_rows(layer).double(), gradient - gradient @ axes.T @ axes, atol=1e-6)
    (space,) = optimizer.gate.layers[0].spaces
    assert not torch.allclose(space.axes.double(), axes)
    assert torch.allclose(space.plain_axes.double(), axes, atol=1e-7)


def test_after_consolidating_too_a_hard_step_leaves_the_outputs_for_past_inputs():
    torch.manual_seed(0)
    layer = nn.Linear(12, 3)
    optimizer = SFAO(layer_groups(layer), lr=0.5, keep=0, restore=1)
    old = torch.randn(5, 12)
    optimizer.consolidate(layer, [(old, torch.zeros(5))])
    before = layer(old).detach()
    for inputs, targets in task(1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(layer(inputs), targets).backward()
        optimizer.step()
    assert torch.allclose(layer(old), before, atol=1e-5)
    assert (layer.weight.grad.norm() > 1e-3).all()


# -- Given axes --------------------------------------------------------------------------------------------


def test_given_axes_take_the_place_of_others_and_are_saved():
    torch.manual_seed(0)
    layer = nn.Linear(12, 3)
    optimizer = trained(layer, SFAO(layer_groups(layer), lr=0.1, keep=0, restore=1), tasks=1)
    axes = orthonormal_rows(4, 13)
    optimizer.gate.set_axes({"(root)": axes})
    other = SFAO(layer_groups(nn.Linear(12, 3)), lr=0.1, keep=0, restore=1)
    other.load_state_dict(optimizer.state_dict())
    for gate in (optimizer.gate, other.gate):
        (space,) = gate.layers[0].spaces
        assert torch.allclose(space.axes.double(), axes, atol=1e-7)
        assert torch.equal(space.importances, torch.ones(4, dtype=torch.float64))
    give_gradients(layer)
    optimizer.step()
    assert optimizer.drifts == {"(root)": 0.0}


def test_axes_that_do_not_fit_are_refused_and_nothing_changes():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = SFAO(layer_groups(model), lr=0.1)
    with pytest.raises(ValueError, match="`axes` must be one of 0, 1, got 'x'"):
        optimizer.gate.set_axes({"x": torch.eye(5)})
    with pytest.raises(ValueError, match=r"`axes` must be rows of 4 entries, got shape \(5, 5\)"):
        optimizer.gate.set_axes({"0": torch.eye(5), "1": torch.eye(5)})
    assert optimizer.memory_bytes == 0
