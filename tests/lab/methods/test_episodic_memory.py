"""The stored examples of a task, and the loss on them."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.lab.methods.episodic_memory import EpisodicMemory
from sfao.lab.streams.permuted import permute
from tests.lab.methods.laboratory import dataset, stream

CPU = torch.device("cpu")


def fill_memory(tasks, count=6) -> EpisodicMemory:
    memory = EpisodicMemory()
    for number, task in enumerate(tasks):
        memory.add(task, count, torch.Generator().manual_seed(number))
    return memory


def test_bytes_count_pixels_labels_and_owners():
    assert fill_memory(stream(), 6).bytes == 3 * 6 * (12 + 8 + 8)
    assert EpisodicMemory().bytes == 0
    memory = fill_memory(stream(), 1000)  # all there are
    assert len(memory) == 120


def test_a_stored_example_is_seen_as_the_task_shows_it():
    """Normalised, permuted if the task is, with its own label: each one is found among the task's own batches."""
    for tasks in (stream("task"), permute(dataset(), tasks=3)):
        memory = fill_memory(tasks)
        for number, task in enumerate(tasks):
            inputs, targets, outputs = memory.of_task(number, CPU)
            images, labels = next(task.train.batches(len(task.train)))
            assert outputs == [task.outputs] * 6
            for image, label in zip(inputs, targets, strict=True):
                same = (images == image).flatten(1).all(1)
                assert same.any()
                assert label in labels[same]


def test_examples_are_drawn_from_all_tasks_alike_and_only_once():
    memory = fill_memory(stream(), 4)
    counts = torch.zeros(12)
    generator = torch.Generator().manual_seed(0)
    everything = memory.draw(100, torch.Generator(), CPU).inputs
    assert len(everything) == 12
    rows = [tuple(image.flatten().tolist()) for image in everything]
    for _ in range(400):
        drawn = [rows.index(tuple(image.flatten().tolist())) for image in memory.draw(3, generator, CPU).inputs]
        assert len(set(drawn)) == 3
        counts[drawn] += 1
    # 3 of 12, 400 times: 100 expected each, standard deviation 8.7
    assert (counts - 100).abs().max() < 40


def test_the_loss_looks_at_every_examples_own_outputs():
    tasks = stream("task")
    memory = fill_memory(tasks)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, tasks.outputs))
    drawn = memory.draw(10, torch.Generator().manual_seed(3), CPU)
    assert len({head.start for head in drawn.outputs}) == 3
    each = [
        cross_entropy(model(x[None])[:, head], y[None])
        for x, y, head in zip(drawn.inputs, drawn.targets, drawn.outputs, strict=True)
    ]
    assert torch.allclose(drawn.loss(model), torch.stack(each).mean())


def test_the_loss_of_a_shared_head_is_the_plain_one():
    memory = fill_memory(stream("class"))
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    drawn = memory.draw(10, torch.Generator(), CPU)
    assert torch.equal(drawn.loss(model), cross_entropy(model(drawn.inputs), drawn.targets))
