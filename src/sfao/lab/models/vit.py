"""A small vision transformer (Dosovitskiy et al. 2021)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from sfao.checks import check_count


def vit(
    input_shape: tuple[int, ...], outputs: int, patch: int = 4, dim: int = 64, depth: int = 4, heads: int = 4
) -> nn.Module:
    """Build a transformer over patches of an image, whose outputs are averaged for the classifier.

    Args:
        input_shape: channels, height and width.
        outputs: the number of outputs.
        patch: the side of a patch, in pixels.
        dim: the width of the blocks.
        depth: the number of blocks.
        heads: attention heads of each block.
    """
    for name, value in {"patch": patch, "dim": dim, "depth": depth, "heads": heads}.items():
        check_count(name, value)
    if dim % heads:
        raise ValueError(f"`heads` must divide `dim`, {dim}, got {heads}")
    _, height, width = input_shape
    if height % patch or width % patch:
        raise ValueError(f"`patch` must divide the sides of the images, {height}x{width}, got {patch}")
    return ViT(input_shape, outputs, patch, dim, depth, heads)


class ViT(nn.Module):
    def __init__(
        self, input_shape: tuple[int, ...], outputs: int, patch: int, dim: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.embed = nn.Conv2d(channels, dim, patch, stride=patch)
        self.position = nn.Parameter(torch.empty(1, (height // patch) * (width // patch), dim))
        self.blocks = nn.Sequential(*(TransformerBlock(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.position, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.position
        logits: Tensor = self.classifier(self.norm(self.blocks(tokens)).mean(1))
        return logits


class TransformerBlock(nn.Module):
    """Attention and a perceptron, each after a LayerNorm and beside a shortcut."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        tokens = tokens + self.out(attended)
        updated: Tensor = tokens + self.mlp(self.norm2(tokens))
        return updated
