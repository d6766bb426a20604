"""ER and DER++: their sample of what was seen, their losses, their state."""

from itertools import combinations

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from sfao.lab.methods.replay_buffer import Reservoir
from tests.lab.methods.short_runs import events, make, play, stream, weights


def fill(capacity: int, count: int, seed: int, batch: int = 7) -> Reservoir:
    held = Reservoir(capacity, torch.Generator().manual_seed(seed))
    for numbers in torch.arange(count).split(batch):
        held.add(numbers[:, None].float(), numbers, slice(0, 2))
    return held


def test_a_reservoir_holds_all_there_is_until_it_is_full():
    held = fill(10, 9, 0)
    assert sorted(held.draw(100).targets.tolist()) == list(range(9))


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_every_pair_has_the_same_chance(batch):
    """1000 samples of 2 among 5: each of the ten pairs is a tenth of them, within five standard errors."""
    found = dict.fromkeys(combinations(range(5), 2), 0)
    for seed in range(1000):
        found[tuple(sorted(fill(2, 5, seed, batch).draw(2).targets.tolist()))] += 1
    error = (1000 * 0.1 * 0.9) ** 0.5
    assert all(abs(count - 100) < 5 * error for count in found.values())


def test_what_belongs_together_stays_together():
    held = Reservoir(5, torch.Generator().manual_seed(0))
    for number in range(40):
        values = torch.full((3,), float(number))
        head = slice(2 * (number % 2), 2 * (number % 2) + 2)
        held.add(values[:, None], values.long(), head, values[:, None] * 10)
    drawn = held.draw(5)
    assert drawn.inputs[:, 0].tolist() == drawn.targets.tolist()
    assert [first for first, _ in drawn.outputs] == [2 * (target % 2) for target in drawn.targets.tolist()]
    inputs, answered = held.draw_with_logits(5)
    assert torch.equal(inputs * 10, answered)


def stored_loss(run, stored):
    """The sum of the losses of stored examples, one by one, each on the outputs of its task."""
    return sum(
        cross_entropy(run.model(one[None])[:, slice(*head)], target[None])
        for one, target, head in zip(stored.inputs, stored.targets, stored.outputs, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "options"), [("er", {}), ("derpp", {"answers": 0.3, "labels": 0.7})], ids=["er", "derpp"]
)
def test_a_step_learns_the_batch_and_the_stored_examples(name, options):
    tasks = stream("task")
    run = make(name, tasks, {"examples": 30, "batch": 1000, **options}, lr=1.0)
    play(run, events(tasks)[:9])
    _, _, (x, y, outputs) = events(tasks)[9]
    stored = run.memory.draw(1000)
    if name == "er":
        total = cross_entropy(run.model(x)[:, outputs], y, reduction="sum") + stored_loss(run, stored)
        loss = total / (len(y) + len(stored.targets))
    else:
        inputs, answered = run.memory.draw_with_logits(1000)
        loss = cross_entropy(run.model(x)[:, outputs], y) + 0.3 * mse_loss(run.model(inputs), answered)
        loss = loss + 0.7 * stored_loss(run, stored) / len(stored.targets)
    grads = torch.autograd.grad(loss, list(run.model.parameters()))
    before = weights(run)
    run.step(x, y, outputs)
    assert torch.allclose(weights(run), before - torch.cat([grad.flatten() for grad in grads]), atol=1e-6)


def test_answers_are_those_of_when_an_example_was_learned():
    tasks = stream("domain")
    run = make("derpp", tasks, {"examples": 8})
    begin, step = events(tasks)[:2]
    play(run, [begin])
    with torch.no_grad():
        answers = run.model(step[2][0])
    play(run, [step])
    inputs, answered = run.memory.draw_with_logits(8)
    places = [(step[2][0] == one).flatten(1).all(1).nonzero().item() for one in inputs]
    assert torch.allclose(answers[places], answered)
