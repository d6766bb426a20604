"""ResNet-18 (He et al. 2016) in its form for small images."""

from torch import Tensor, nn
from torch.nn import functional

from sfao.checks import check_count


def resnet_18(input_shape: tuple[int, ...], outputs: int, width: int = 64) -> nn.Module:
    """Build ResNet-18 with a 3x3 convolution instead of the stem, and no pooling before the end.

    Args:
        input_shape: channels, height and width.
        outputs: the number of outputs.
        width: channels of the first stage: 64, or 20 for the reduced form common in continual learning.
    """
    check_count("width", width)
    return ResNet18(input_shape[0], outputs, width)


class ResNet18(nn.Module):
    def __init__(self, channels: int, outputs: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        stages = zip(widths[:-1], widths[1:], (1, 2, 2, 2), strict=True)
        self.stages = nn.Sequential(
            *(nn.Sequential(BasicBlock(a, b, stride), BasicBlock(b, b, 1)) for a, b, stride in stages)
        )
        self.classifier = nn.Linear(8 * width, outputs)

    def forward(self, images: Tensor) -> Tensor:
        features = self.stages(functional.relu(self.bn1(self.conv1(images))))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(inputs)))
        return functional.relu(self.bn2(self.conv2(hidden)) + self.shortcut(inputs))
