import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfao.lab.models import mlp


@given(hidden=st.lists(st.integers(1, 6), max_size=3), outputs=st.integers(1, 5), batch=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_hidden_sizes_in_order_between_pixels_and_outputs(hidden, outputs, batch):
    model = mlp((1, 2, 3), outputs, hidden)
    linear = [(layer.in_features, layer.out_features) for layer in model if isinstance(layer, nn.Linear)]
    assert linear == list(zip([6, *hidden], [*hidden, outputs], strict=True))
    assert model(torch.zeros(batch, 1, 2, 3)).shape == (batch, outputs)


def test_one_size_is_one_hidden_layer():
    assert str(mlp((1, 2, 2), 3, 5)) == str(mlp((1, 2, 2), 3, [5]))


def test_the_hidden_layers_are_not_linear():
    model = mlp((1, 2, 2), 1, 16)
    inputs = torch.randn(1, 1, 2, 2)
    assert not torch.allclose(model(inputs) + model(-inputs), 2 * model(torch.zeros_like(inputs)))


@pytest.mark.parametrize("hidden", [0, -3, [8, 0], [2.5], ["8"], None, "8", {"a": 8}])
def test_sizes_that_are_no_counts_are_refused(hidden):
    with pytest.raises(ValueError, match="`hidden` must be a whole number of at least 1, got"):
        mlp((1, 2, 2), 2, hidden)
