"""Models of timm by name."""

import pytest
import torch

from sfao.lab.models import build_model


@pytest.mark.parametrize("architecture", ["resnet10t", "vit_tiny_patch16_224"])
def test_a_model_of_timm_takes_the_images_and_has_the_outputs(architecture):
    model = build_model("timm", (1, 32, 32), 7, seed=0, architecture=architecture)
    assert model(torch.rand(2, 1, 32, 32)).shape == (2, 7)
    again = build_model("timm", (1, 32, 32), 7, seed=0, architecture=architecture)
    assert all(map(torch.equal, model.parameters(), again.parameters()))


def test_an_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match="`architecture` must be the name of a model in timm, got 'resnet19'"):
        build_model("timm", (3, 32, 32), 2, seed=0, architecture="resnet19")
