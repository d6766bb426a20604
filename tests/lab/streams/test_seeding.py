import torch

from sfao.lab.streams.seeding import make_generator


def test_seed_and_purpose_decide_the_numbers():
    draws = [
        torch.rand(4, generator=make_generator(seed, purpose)) for seed in (0, 1) for purpose in ("order", "classes")
    ]
    assert torch.equal(draws[0], torch.rand(4, generator=make_generator(0, "order")))
    assert len({tuple(draw.tolist()) for draw in draws}) == 4


def test_a_seed_gives_the_numbers_it_always_gave():
    drawn = torch.randperm(10, generator=make_generator(0, "class order")).tolist()
    assert drawn == [2, 9, 1, 6, 7, 3, 5, 8, 0, 4]
