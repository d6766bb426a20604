import torch
from torch import nn

from sfao.gating._layout import Layout, lay_out
from sfao.optim._host_path import as_matrices


def of(module: nn.Module) -> list[Layout]:
    return lay_out([p.shape for p in module.parameters()])


def test_a_linear_layer_is_out_by_in_plus_one():
    assert of(nn.Linear(7, 3)) == [Layout(3, (7, 1))]


def test_a_convolution_is_out_by_fan_in():
    assert of(nn.Conv2d(2, 5, 3)) == [Layout(5, (18, 1))]
    assert of(nn.Conv2d(2, 5, 3, bias=False)) == [Layout(5, (18,))]


def test_vectors_without_a_weight_are_one_row():
    assert of(nn.BatchNorm2d(6)) == [Layout(1, (6, 6))]
    assert lay_out([(), (4,)]) == [Layout(1, (1, 4))]


def test_one_output():
    assert of(nn.Linear(4, 1)) == [Layout(1, (4, 1))]


def test_consecutive_layers_stay_apart():
    square = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert of(square) == [Layout(4, (4, 1)), Layout(4, (4, 1))]


def test_an_lstm_shares_its_rows():
    assert of(nn.LSTM(3, 5)) == [Layout(20, (3, 5, 1, 1))]


def test_matrices_keep_every_entry_and_share_memory():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(4, 2))
    gradients = [torch.randn_like(p) for p in model.parameters()]
    matrices = as_matrices(of(model), [*gradients[:-1], None])
    assert matrices[-1] is None
    for gradient, matrix in zip(gradients[:-1], matrices[:-1], strict=True):
        assert torch.equal(matrix.flatten(), gradient.flatten())
        assert matrix.data_ptr() == gradient.data_ptr()


def test_every_parameter_has_its_columns():
    for module in (
        nn.LSTM(3, 5, num_layers=2),
        nn.MultiheadAttention(8, 2),
        nn.ConvTranspose2d(3, 4, 2),
        nn.Bilinear(2, 3, 4),
    ):
        sizes = [p.numel() for p in module.parameters()]
        assert [x.rows * c for x in of(module) for c in x.columns] == sizes
