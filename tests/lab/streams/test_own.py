"""Tasks of one's own: whatever torch data sets hold arrives unchanged, and everything else is refused by name."""

import re

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from sfao.lab.data.errors import DataError
from sfao.lab.streams.own import OwnBenchmark, adapt_benchmark, read_tasks, split_own
from sfao.lab.streams.seeding import slice_dataset


def part(labels, shape=(3,), seed=0, dtype=torch.float32):
    inputs = torch.randn(len(labels), *shape, generator=torch.Generator().manual_seed(seed))
    return TensorDataset((inputs * 10).to(dtype), torch.tensor(labels))


def pairs(*labels, **how):
    return [(part(own, seed=n, **how), part(own[:4], seed=n + 10, **how)) for n, own in enumerate(labels)]


class Items(Dataset):
    """A data set that is a list."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


def batch(labelled, size=1000):
    return next(labelled.batches(size))


@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
@pytest.mark.parametrize("shape", [(3,), (1, 4, 4), (2, 3, 4, 5), ()])
def test_every_example_arrives_as_it_is(scenario, shape):
    tasks = pairs([0, 1, 1, 0], [3, 2, 3, 2, 2], shape=shape)
    stream = split_own(read_tasks(tasks, "own"), scenario=scenario)
    assert stream.input_shape == shape
    assert [task.name for task in stream] == ["task 1", "task 2"]
    for task, given in zip(stream, tasks, strict=True):
        for ours, theirs in ((task.train, given[0]), (task.test, given[1])):
            inputs, labels = batch(ours)
            assert torch.equal(inputs, theirs.tensors[0])
            first = task.outputs.start if scenario == "class" else int(theirs.tensors[1].min()) // 2 * 2
            assert torch.equal(labels + first, theirs.tensors[1])


def test_a_list_of_items_is_read_as_tensors_are():
    dataset = part([0, 1, 1, 0])
    for make in (int, torch.tensor, lambda label: torch.tensor(label, dtype=torch.uint8)):
        items = Items([(x, make(int(y))) for x, y in dataset])
        read = read_tasks([(items, dataset)], "own")
        assert torch.equal(read.train_images, read.test_images)
        assert torch.equal(read.train_labels, read.test_labels)


@pytest.mark.parametrize(
    ("scenario", "labels", "heads", "outputs"),
    [
        ("domain", ([0, 1], [0, 1]), [(0, 2), (0, 2)], 2),
        ("domain", ([0, 1], [2, 3]), [(0, 2), (0, 2)], 2),
        ("domain", ([0, 1, 2], [7, 5]), [(0, 3), (0, 3)], 3),
        ("task", ([0, 1, 2], [7, 5]), [(0, 3), (3, 5)], 5),
        ("task", ([0, 1], [0, 1]), [(0, 2), (2, 4)], 4),
        ("class", ([0, 1, 2], [2, 5]), [(0, 6), (0, 6)], 6),
    ],
)
def test_the_outputs_of_each_scenario(scenario, labels, heads, outputs):
    stream = split_own(read_tasks(pairs(*labels), "own"), scenario=scenario)
    assert [(task.outputs.start, task.outputs.stop) for task in stream] == heads
    assert stream.outputs == outputs
    for task in stream:
        assert int(batch(task.train)[1].max()) < task.outputs.stop - task.outputs.start


def test_order_slices_and_validation_are_as_for_our_own_benchmarks():
    data = read_tasks(pairs([0, 1] * 20, [0, 1] * 20), "own")
    turned = split_own(data, order=[1, 0], validation=0.25, seed=3)
    assert [task.name for task in turned] == ["task 2", "task 1"]
    for task in turned:
        assert (len(task.train), len(task.validation)) == (30, 10)
        assert batch(task.validation)[1].bincount().tolist() == [5, 5]
    sliced = split_own(slice_dataset(data, 0.1))
    assert [batch(task.train)[1].bincount().tolist() for task in sliced] == [[2, 2], [2, 2]]
    assert len(split_own(data, tasks=1)) == 1


def test_the_digest_is_of_the_values():
    same = [read_tasks(pairs([0, 1], [0, 1]), name).digest for name in ("a", "b")]
    assert same[0] == same[1]
    assert read_tasks(pairs([1, 0], [0, 1]), "a").digest != same[0]


def test_integers_for_embeddings_stay_integers_and_other_floats_become_float32():
    assert read_tasks(pairs([0, 1], dtype=torch.int64), "own").train_images.dtype == torch.int64
    assert read_tasks(pairs([0, 1], dtype=torch.float64), "own").train_images.dtype == torch.float32


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(3), 0


GOOD = part([0, 1])
THREE = torch.zeros(3)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (3, "`stream` must be a list or a dict of tasks, got int"),
        ([], "`stream` must have at least one task, got none"),
        ([GOOD], "`stream`: task 1 must be (train, test), two torch data sets, got TensorDataset"),
        ([(GOOD, 3)], "`stream`: the test set of task 1 must be a torch data set with a length, got int"),
        ([(Endless(), GOOD)], "the training set of task 1 must be a torch data set with a length, got Endless"),
        ({"a": (GOOD, Items([]))}, "`stream`: the test set of a must have at least one example, got none"),
        ([(Items([{"x": 1}]), GOOD)], "must yield (tensor, label), got dict as item 0"),
        ([(Items([(THREE, 1, 2)]), GOOD)], "must yield (tensor, label), got (Tensor, int, int) as item 0"),
        ([(Items([(THREE, "cat")]), GOOD)], "must have inputs of one shape, and integers as labels: "),
        ([(Items([(THREE, 0), (torch.zeros(4), 1)]), GOOD)], "must have inputs of one shape, and integers as labels: "),
        ([(Items([(THREE, 0.5)]), GOOD)], "must have one integer as the label of each input, got torch.float32"),
        ([(TensorDataset(torch.zeros(2, 3), torch.zeros(2, 2).long()), GOOD)], "got torch.int64 of shape (2,)"),
        ([(part([0, 10**6]), GOOD)], "must have labels from 0 to 99999, got 1000000"),
        ([(part([0, 1], dtype=torch.uint8), GOOD)], "inputs of floats, or of int64 for an embedding, got torch.uint8"),
        ([(TensorDataset(torch.full((2, 3), torch.nan), torch.tensor([0, 1])), GOOD)], "must have finite inputs"),
        (
            [(GOOD, GOOD), (part([0, 1], shape=(4,)), GOOD)],
            "one shape and type, got (4,) of float32 in the training set of task 2 and (3,) of float32 in the training",
        ),
    ],
)
def test_what_is_no_stream_of_tasks_is_refused_in_one_line(tasks, said):
    with pytest.raises(DataError) as caught:
        read_tasks(tasks, "own")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "how", "said"),
    [
        (([0, 1], [1, 2]), {}, "task 1 and task 2 share 1 of 3; class keeps labels as they are"),
        (([0, 1], [2, 2]), {}, "task 2 must have at least 2 labels in scenario 'domain', got [2]"),
        (([0, 1],), {"tasks": 2}, "`tasks` must be from 1 to the 1 that there are, got 2"),
        (([0, 1],), {"scenario": "clas"}, "did you mean 'class'"),
    ],
)
def test_labels_that_do_not_fit_the_scenario(labels, how, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        split_own(read_tasks(pairs(*labels), "own"), **how)


def test_nothing_is_read_before_it_is_needed_and_then_once():
    calls = []

    def tasks():
        calls.append(1)
        return pairs([0, 1])

    found = adapt_benchmark(tasks, "mine:tasks")
    assert calls == []
    assert found.load() is found.load()
    assert found.count_training_examples() == 2
    assert calls == [1]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (3, "must be a list or dict of (train, test) pairs"),
        ("text", "got str"),
        (lambda seed: [], "got one that needs seed"),
    ],
)
def test_what_makes_no_tasks_is_refused(found, said):
    with pytest.raises(TypeError) as caught:
        adapt_benchmark(found, "mine:tasks")
    assert said in str(caught.value)


def test_an_error_of_a_function_of_ones_own_is_named():
    with pytest.raises(DataError, match="`stream` 'mine:tasks' cannot be read: ZeroDivisionError: division by zero"):
        OwnBenchmark("mine:tasks", make=lambda: 1 / 0).load()
