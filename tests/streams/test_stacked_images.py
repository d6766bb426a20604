import pytest
import torch

from sfao.streams.labelled_images import LabelledImages, draw_order
from sfao.streams.seeding import make_generator
from sfao.streams.stacked_images import StackedImages

CPU = torch.device("cpu")


def make_images(seed, *, count=11, permuted=False, own=False, std=(0.3, 0.2)):
    generator = torch.Generator().manual_seed(seed if own else 0)
    images = torch.randint(0, 256, (40, 2, 3, 4), dtype=torch.uint8, generator=generator)
    indices = torch.randperm(40, generator=torch.Generator().manual_seed(seed))[:count]
    permutation = torch.randperm(12, generator=torch.Generator().manual_seed(seed)) if permuted else None
    return LabelledImages(images, indices, indices % 3, (0.1, 0.5) if std else (), std, permutation)


@pytest.mark.parametrize(
    "kinds",
    [
        [{}, {}, {}],
        [{"permuted": True}, {}, {"permuted": True}],
        [{"own": True}, {}, {"own": True, "permuted": True}],
        [{"std": ()}, {"std": ()}, {"std": ()}],
    ],
)
@pytest.mark.parametrize(("batch_size", "start"), [(4, 0), (4, 2), (11, 0), (4, 3), (20, 1)])
def test_each_run_sees_its_own_batches_to_the_last_bit(kinds, batch_size, start):
    parts = [make_images(seed, **kind) for seed, kind in enumerate(kinds)]
    orders = torch.stack([draw_order(11, make_generator(seed, "order")) for seed in range(3)])
    found = list(StackedImages(parts, CPU).batches(orders, batch_size, start))
    for seed, part in enumerate(parts):
        wanted = list(part.batches(batch_size, make_generator(seed, "order"), start=start))
        assert len(found) == len(wanted)
        for (inputs, labels), (own_inputs, own_labels) in zip(found, wanted, strict=True):
            assert torch.equal(inputs[seed], own_inputs)
            assert torch.equal(labels[seed], own_labels)


def test_images_that_runs_share_are_held_once():
    images = make_images(0)
    same = LabelledImages(images.images.clone(), images.indices, images.labels, images.mean, images.std)
    assert len(StackedImages([images, same, make_images(1)], CPU)._images) == 40
