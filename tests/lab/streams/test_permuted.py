"""Permuted streams: the same images in every task, each task with its own pixel permutation."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.streams.permuted import permute
from sfao.lab.streams.stream import SCENARIOS


def permutations(stream):
    return [task.train.permutation for task in stream]


@given(
    tasks=st.integers(1, 4),
    scenario=st.sampled_from(SCENARIOS),
    seed=st.integers(0, 50),
    validation=st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=30, deadline=None)
def test_every_task_holds_every_example_through_one_permutation(tiny, tasks, scenario, seed, validation):
    dataset = tiny(classes=3)
    stream = permute(dataset, tasks=tasks, scenario=scenario, seed=seed, validation=validation)
    assert len(stream) == tasks
    for number, task in enumerate(stream):
        parts = [part for part in (task.train, task.validation, task.test) if part is not None]
        assert all(part.permutation is parts[0].permutation for part in parts)
        assert sorted(parts[0].permutation.tolist()) == list(range(12))
        assert torch.equal(task.test.indices, torch.arange(len(dataset.test_labels)))
        assert sum(map(len, parts[:-1])) == len(dataset.train_labels)
        offset = 3 * number if scenario == "class" else 0
        assert torch.equal(task.train.labels, dataset.train_labels[task.train.indices] + offset)
        width = task.outputs.stop - task.outputs.start
        assert int(task.train.labels.max()) < width


def test_permutations_differ_by_task_and_by_seed(tiny):
    drawn = [tuple(p.tolist()) for seed in (0, 1) for p in permutations(permute(tiny(), seed=seed))]
    assert len(set(drawn)) == 6


def test_a_permutation_does_not_depend_on_how_many_tasks_or_what_is_held_out(tiny):
    three, five = permute(tiny()), permute(tiny(), tasks=5, validation=0.2)
    for one, other in zip(permutations(three), permutations(five)[:3], strict=True):
        assert torch.equal(one, other)


def test_the_first_task_is_permuted_too(tiny):
    stream = permute(tiny())
    assert [task.name for task in stream] == ["permutation 1", "permutation 2", "permutation 3"]
    assert not torch.equal(permutations(stream)[0], torch.arange(12))


def test_the_same_examples_are_held_out_of_every_task(tiny):
    first, second, third = (task.validation.indices for task in permute(tiny(), validation=0.3))
    assert torch.equal(first, second)
    assert torch.equal(second, third)


def test_batches_show_the_permuted_pixels(tiny):
    dataset = tiny(shape=(3, 2, 2))
    task = permute(dataset).tasks[0]
    images, _ = next(task.test.batches(1))
    mean, std = torch.tensor(dataset.mean)[:, None], torch.tensor(dataset.std)[:, None]
    pixels = dataset.test_images[0].flatten(1)[:, task.test.permutation].float()
    torch.testing.assert_close(images[0].flatten(1), (pixels / 255 - mean) / std)
