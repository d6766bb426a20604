"""Split streams: which classes and examples a task holds, and how they are labelled."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.streams.split import split
from sfao.lab.streams.stream import SCENARIOS


@given(
    size=st.integers(2, 4),
    tasks=st.integers(1, 5),
    scenario=st.sampled_from(SCENARIOS),
    seed=st.integers(0, 50),
    validation=st.sampled_from([0.0, 0.1, 0.5]),
    order=st.sampled_from([None, "random"]),
)
@settings(max_examples=50, deadline=None)
def test_every_example_is_in_one_part_with_the_right_label(tiny, size, tasks, scenario, **options):
    dataset = tiny(classes=size * tasks)
    stream = split(dataset, tasks=tasks, scenario=scenario, **options)
    assert sorted(label for task in stream for label in task.classes) == list(range(size * tasks))
    train = [part for task in stream for part in (task.train, task.validation) if part is not None]
    for parts, images, labels in (
        (train, dataset.train_images, dataset.train_labels),
        ([task.test for task in stream], dataset.test_images, dataset.test_labels),
    ):
        assert sorted(torch.cat([part.indices for part in parts]).tolist()) == list(range(len(labels)))
        assert all(part.images is images for part in parts)
    for task in stream:
        for part, labels in ((task.train, dataset.train_labels), (task.test, dataset.test_labels)):
            assert set(labels[part.indices].tolist()) == set(task.classes)
            width = task.outputs.stop - task.outputs.start
            assert 0 <= int(part.labels.min()) <= int(part.labels.max()) < width
            pairs = set(zip(labels[part.indices].tolist(), part.labels.tolist(), strict=True))
            assert len(pairs) == size, "a class has one label"
            if scenario == "class":
                assert all(original == label for original, label in pairs)
            else:
                assert {label for _, label in pairs} == set(range(size))


def test_the_usual_stream_of_ten_classes(tiny):
    stream = split(tiny())
    assert [task.name for task in stream] == ["0/1", "2/3", "4/5", "6/7", "8/9"]
    assert (stream.name, stream.scenario, stream.outputs, stream.input_shape) == ("split-tiny", "domain", 2, (1, 3, 4))
    assert [len(task.train) for task in stream] == [20] * 5
    assert [task.validation for task in stream] == [None] * 5
    assert len(stream) == 5


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_order_moves_whole_tasks(tiny, scenario):
    plain, moved = (split(tiny(), scenario=scenario, order=order) for order in (None, "4,2,0,1,3"))
    for place, task in zip([4, 2, 0, 1, 3], moved, strict=True):
        same = plain.tasks[place]
        assert (task.name, task.classes, task.outputs) == (same.name, same.classes, same.outputs)
        assert torch.equal(task.train.labels, same.train.labels)
    assert (plain.order, moved.order) == ((0, 1, 2, 3, 4), (4, 2, 0, 1, 3))


def test_held_out_examples_do_not_depend_on_the_stream(tiny):
    few, many = (
        torch.cat([task.validation.indices for task in split(tiny(), tasks=tasks, scenario="class", validation=0.3)])
        for tasks in (2, 5)
    )
    assert sorted(few.tolist()) == sorted(many.tolist())


def test_tasks_that_do_not_divide_the_classes_are_refused(tiny):
    with pytest.raises(ValueError, match="`tasks` must divide the 10 classes of 'tiny' evenly, got 3"):
        split(tiny(), tasks=3)
    with pytest.raises(ValueError, match="`tasks` must divide the 10 classes of 'tiny' evenly, got 20"):
        split(tiny(), tasks=20)
    with pytest.raises(ValueError, match="`tasks` must be a whole number of at least 1, got 0"):
        split(tiny(), tasks=0)


def test_a_number_of_classes_without_usual_tasks_needs_one(tiny):
    with pytest.raises(ValueError, match="`tasks` must be given for a data set of 6 classes, got None"):
        split(tiny(classes=6))
    assert len(split(tiny(classes=6), tasks=2)) == 2


def test_one_class_a_task_is_for_the_class_scenario_only(tiny):
    for scenario in ("domain", "task"):
        with pytest.raises(ValueError, match=f"`tasks` must leave at least 2 classes a task in scenario '{scenario}'"):
            split(tiny(), tasks=10, scenario=scenario)
    assert len(split(tiny(), tasks=10, scenario="class")) == 10
