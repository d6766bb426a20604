"""Wide residual networks (Zagoruyko and Komodakis 2016), pre-activation form."""

from numbers import Real

from torch import Tensor, nn
from torch.nn import functional

from sfao.checks import check_count


def wrn_28_10(input_shape: tuple[int, ...], outputs: int, dropout: float = 0.0) -> nn.Module:
    """Build the paper's large model: 28 layers, ten times as wide; 36,479,194 parameters for 10 classes of RGB.

    Args:
        input_shape: channels, height and width.
        outputs: the number of outputs.
        dropout: the dropout rate between the two convolutions of a block.
    """
    return wide_resnet(input_shape, outputs, depth=28, widen=10, dropout=dropout)


def wide_resnet(
    input_shape: tuple[int, ...], outputs: int, depth: int = 28, widen: int = 10, dropout: float = 0.0
) -> nn.Module:
    """Build a wide residual network for images of any size: the features are averaged over all positions."""
    check_count("widen", widen)
    if not isinstance(depth, int) or depth < 10 or depth % 6 != 4:
        raise ValueError(f"`depth` must be 6 n + 4 with n of at least 1 (10, 16, 22, 28, ...), got {depth!r}")
    if not isinstance(dropout, Real) or not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must be in [0, 1), got {dropout!r}")
    return WideResNet(input_shape[0], outputs, blocks=(depth - 4) // 6, widen=widen, dropout=dropout)


class WideResNet(nn.Module):
    def __init__(self, channels: int, outputs: int, *, blocks: int, widen: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.group1 = _group(16, 16 * widen, blocks, stride=1, dropout=dropout)
        self.group2 = _group(16 * widen, 32 * widen, blocks, stride=2, dropout=dropout)
        self.group3 = _group(32 * widen, 64 * widen, blocks, stride=2, dropout=dropout)
        self.norm = nn.BatchNorm2d(64 * widen)
        self.classifier = nn.Linear(64 * widen, outputs)

    def forward(self, images: Tensor) -> Tensor:
        features = self.group3(self.group2(self.group1(self.stem(images))))
        activated = functional.relu(self.norm(features))
        logits: Tensor = self.classifier(activated.mean((2, 3)))
        return logits


class Block(nn.Module):
    """Normalize, activate, convolve, twice; where the shape changes the shortcut is a 1x1 convolution.

    That shortcut starts from the activated input, as in the authors' code; a plain one from the input itself.
    """

    def __init__(self, channels: int, width: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        reshapes = channels != width or stride != 1
        self.shortcut = nn.Conv2d(channels, width, 1, stride=stride, bias=False) if reshapes else None

    def forward(self, inputs: Tensor) -> Tensor:
        activated = functional.relu(self.norm1(inputs))
        residual = functional.relu(self.norm2(self.conv1(activated)))
        kept: Tensor = inputs if self.shortcut is None else self.shortcut(activated)
        updated: Tensor = self.conv2(self.dropout(residual))
        return kept + updated


def _group(channels: int, width: int, blocks: int, *, stride: int, dropout: float) -> nn.Sequential:
    first = Block(channels, width, stride=stride, dropout=dropout)
    others = (Block(width, width, stride=1, dropout=dropout) for _ in range(blocks - 1))
    return nn.Sequential(first, *others)
