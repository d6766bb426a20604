"""Models of timm, by their name there."""

from torch import nn

from sfao.checks import explain_missing


def timm_model(
    input_shape: tuple[int, ...], outputs: int, architecture: str = "resnet18", pretrained: bool = False
) -> nn.Module:
    """Build a model of timm, for example ``model.name=timm model.architecture=vit_tiny_patch16_224``.

    Args:
        input_shape: channels, height and width.
        outputs: the number of outputs.
        architecture: the name of the model in timm.
        pretrained: load pretrained weights, which timm downloads.
    """
    try:
        import timm
    except ImportError as error:
        raise explain_missing(error, "timm", "`model.name=timm`", "timm") from error
    if not timm.is_model(architecture):
        raise ValueError(f"`architecture` must be the name of a model in timm, got {architecture!r}")
    settings = {"pretrained": pretrained, "num_classes": outputs, "in_chans": input_shape[0]}
    try:  # transformers must know the size of their images
        model = timm.create_model(architecture, img_size=tuple(input_shape[1:]), **settings)
    except TypeError:
        model = timm.create_model(architecture, **settings)
    assert isinstance(model, nn.Module)
    return model
