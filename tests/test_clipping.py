"""Clipping of gradients per unit."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from sfao.clipping import SHORTEST, UnitClip
from tests.bounding import consolidated, make_batches, make_cnn, make_mlp, train


def make_parameter(shape: tuple[int, ...], size: float, gradient: float, dtype: torch.dtype = torch.float32) -> Tensor:
    parameter = nn.Parameter(size * torch.randn(shape).to(dtype))
    parameter.grad = gradient * torch.randn(shape).to(dtype)
    return parameter


def norms(tensor: Tensor) -> Tensor:
    return tensor.detach().float().flatten(1).norm(dim=1)


def clip(parameter: Tensor, share: float) -> bool:
    """Clip a gradient; return True if that changed it."""
    units = UnitClip(share)
    units.apply([parameter])
    return bool(units.counts.get(parameter, 0))


@given(
    st.sampled_from([(5, 1), (4, 3), (3, 2, 2, 2)]),
    st.sampled_from([0.0, 1e-8, 1.0]),
    st.sampled_from([0.0, 1e-3, 1.0, 1e15]),
    st.sampled_from([0.01, 0.3]),
)
def test_no_gradient_is_longer_than_its_share(shape: tuple[int, ...], size: float, length: float, share: float) -> None:
    parameter = make_parameter(shape, size, length)
    before = parameter.grad.clone()
    was_clipped = clip(parameter, share)
    limits = share * norms(parameter).clamp_min(SHORTEST)
    assert (norms(parameter.grad) <= limits * 1.0001).all()
    inside = norms(before) <= limits
    assert torch.equal(parameter.grad[inside], before[inside])
    assert was_clipped == (not inside.all())
    cosines = cosine_similarity(before.flatten(1).double(), parameter.grad.flatten(1).double())
    torch.testing.assert_close(cosines, (norms(before) > 0).double(), atol=1e-5, rtol=0)


def test_half_precision_does_not_overflow() -> None:
    parameter = make_parameter((3, 400), 1.0, 1e4, torch.float16)
    clip(parameter, 0.3)
    assert torch.isfinite(parameter.grad).all()
    assert (norms(parameter.grad) <= 0.301 * norms(parameter)).all()


def test_vectors_and_sparse_gradients_stay() -> None:
    vector, layer = make_parameter((5,), 1.0, 1e6), nn.Embedding(5, 2, sparse=True)
    before = vector.grad.clone()
    (1e6 * layer(torch.tensor([1, 3]))).sum().backward()
    assert not clip(vector, 0.3)
    assert not clip(layer.weight, 0.3)
    assert torch.equal(vector.grad, before)
    assert float(layer.weight.grad.to_dense().max()) == 1e6


def test_only_models_with_frozen_batch_norm_are_clipped() -> None:
    for model, shape, expects in ((make_cnn(), (4, 2, 6, 6), True), (make_mlp(), (4, 5), False)):
        bound, optimizer = consolidated(model, make_batches(*shape), lr=1e-3)
        train(model, optimizer, make_batches(*shape, seed=1), 2, loss=lambda x, y: 1e4 * cross_entropy(x, y))
        assert (bound.telemetry()["clipped"] > 0) == expects


def test_clip_none_disables_it() -> None:
    model, batches = make_cnn(), make_batches(4, 2, 6, 6)
    bound, optimizer = consolidated(model, batches, lr=1e-3, clip=None)
    train(model, optimizer, batches, 2, loss=lambda x, y: 1e4 * cross_entropy(x, y))
    assert bound.telemetry()["clipped"] == 0
