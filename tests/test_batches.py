"""Drawing examples of a finished task, and what its loss may be."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from sfao.batches import check_batches, count_examples, draw_examples, make_objective


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(batches: Any, limit: int, seed: int = 0) -> list[int]:
    """Return the inputs of the drawn examples; each is its own number."""
    return [int(x) for batch in draw_examples(batches, limit, make_generator(seed)) for x in batch[0]]


def make_loader(count: int = 100, **options: Any) -> DataLoader[Any]:
    data = TensorDataset(torch.arange(count)[:, None], torch.zeros(count))
    return DataLoader(data, **{"batch_size": 10, **options})


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 60), st.integers(0, 99))
def test_examples_of_a_sequence_are_drawn_without_replacement(sizes: list[int], limit: int, seed: int) -> None:
    x = torch.arange(sum(sizes)).split(sizes)
    drawn = numbers([(part, part) for part in x], limit, seed)
    assert len(drawn) == len(set(drawn)) == min(limit, sum(sizes))
    assert drawn == sorted(drawn)
    assert set(drawn) <= set(range(sum(sizes)))


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True}, {"batch_size": 7}])
def test_examples_of_a_loader_are_drawn_by_index(options: dict[str, Any]) -> None:
    loader, batches = make_loader(**options), [(part, part) for part in torch.arange(100).split(8)]
    for source in (loader, batches):
        drawn = numbers(source, 20)
        assert len(set(drawn)) == 20
        assert max(drawn) > 70, "the first examples were taken"
        assert numbers(source, 20) == drawn
        assert numbers(source, 20, seed=1) != drawn


def test_samplers_of_a_subset_are_obeyed() -> None:
    subset = list(range(30))
    assert set(numbers(make_loader(sampler=SubsetRandomSampler(subset)), 50)) == set(subset)
    sampler = BatchSampler(SubsetRandomSampler(subset), 8, False)
    assert set(numbers(DataLoader(make_loader().dataset, batch_sampler=sampler), 50)) == set(subset)


def test_loaders_without_batching_are_read_as_they_are() -> None:
    data = [(torch.arange(5) + 5 * n, torch.zeros(5)) for n in range(4)]
    assert numbers(DataLoader(data, batch_size=None), 12) == list(range(12))


def test_the_first_examples_of_an_iterable_are_taken() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return ((torch.tensor([n]), torch.zeros(1)) for n in range(50))

    assert numbers(DataLoader(Stream(), batch_size=4), 10) == list(range(10))
    assert numbers(((torch.arange(4) + 4 * n, torch.zeros(4)) for n in range(9)), 10) == list(range(10))


def test_batches_that_cannot_be_sliced_are_drawn_whole() -> None:
    batches = [{"x": torch.ones(4, 2), "mask": torch.ones(3)} for _ in range(5)]
    assert count_examples(batches[0]) is None
    assert len(list(draw_examples(batches, 6, make_generator()))) == 2


def double(x: Tensor) -> Tensor:
    return 2 * x


@pytest.mark.parametrize(
    ("batches", "loss", "objective"),
    [
        (mse_loss, [], None),
        (nn.MSELoss(), [], None),
        (nn.Sequential(nn.Linear(2, 2)), [], None),
        (torch.ones(3), mse_loss, None),
        ([], "mse", None),
        ([], None, 3),
        ([], mse_loss, double),
    ],
)
def test_wrong_arguments_are_named(batches: Any, loss: Any, objective: Any) -> None:
    with pytest.raises(ValueError, match=r"`(batches|loss|objective)`") as caught:
        check_batches(batches, loss, objective)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "batch", "message"),
    [
        (lambda x, y: x, (torch.ones(2, 3), torch.ones(2)), r"scalar tensor, got Tensor of shape \(2, 2\)"),
        (lambda x, y: 1.0, (torch.ones(2, 3), torch.ones(2)), "scalar tensor, got float"),
        (mse_loss, (torch.ones(2, 3), torch.ones(3)), "as many targets as inputs"),
        (mse_loss, torch.ones(2, 3), "pairs of tensors, got Tensor"),
        (mse_loss, {"x": torch.ones(2, 3)}, "pairs of tensors, got dict of x"),
        (None, (torch.ones(2, 3), torch.ones(2)), "`loss` must be given"),
        (None, {"input": torch.ones(2, 3)}, "returns no `.loss`, got Tensor"),
    ],
)
def test_losses_that_are_no_losses(loss: Any, batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_objective(loss, None)(nn.Linear(3, 2), batch)


def test_objectives() -> None:
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    assert make_objective(None, lambda model, batch: model(batch).sum(1))(model, x).ndim == 0
    for bad, message in [
        (lambda model, batch: model(batch), "one per example"),
        (lambda model, batch: torch.zeros(()), "depends on the model's parameters"),
    ]:
        with pytest.raises(ValueError, match=message):
            make_objective(None, bad)(model, x)
    with_loss = lambda **batch: SimpleNamespace(loss=batch["x"].sum())  # noqa: E731
    assert make_objective(None, None)(with_loss, {"x": x}) == 12
