"""What the default memory takes of a large language model, by the code's own formulas: bytes a rank, messages a step.

    python benchmarks/scale_paper.py

A model of 70 billion weights: 80 blocks of width 8192, 28672 in between, 8 heads of keys and values, 128256 tokens.
"Adapters" are LoRA of rank 16 on all matrices of the blocks. Nothing is trained: the shapes are enough.
"""

from collections.abc import Sequence

from sfao.gating._layout import Layout
from sfao.gating.options import DEFAULTS
from sfao.gating.subspace import PROBES, count_bytes

BLOCKS, WIDTH, BETWEEN, KEYS, TOKENS, ADAPTER = 80, 8192, 28672, 1024, 128256, 16
MATRICES = [
    (WIDTH, WIDTH),
    (KEYS, WIDTH),
    (KEYS, WIDTH),
    (WIDTH, WIDTH),
    (BETWEEN, WIDTH),
    (BETWEEN, WIDTH),
    (WIDTH, BETWEEN),
]
RANKS = (8, 64, 512)


def lay_out_model() -> list[Layout]:
    """Return all matrices with an input space: those of the blocks and the output."""
    return [Layout(rows, (columns,)) for _ in range(BLOCKS) for rows, columns in MATRICES] + [Layout(TOKENS, (WIDTH,))]


def lay_out_adapters() -> list[Layout]:
    pairs = [((ADAPTER, columns), (rows, ADAPTER)) for _ in range(BLOCKS) for rows, columns in MATRICES]
    return [Layout(rows, (columns,)) for pair in pairs for rows, columns in pair]


def show(name: str, layouts: Sequence[Layout]) -> None:
    axes = int(DEFAULTS["axes"])
    held = sum(count_bytes(layout, axes) for layout in layouts)
    weights = sum(layout.size for layout in layouts)
    gathered = sum(4 * (min(axes, layout.width) + PROBES) * layout.width for layout in layouts)
    summed = 8 * len(layouts) * (max(min(axes, layout.width) for layout in layouts) + 3)
    products = sum(4 * min(axes, layout.width) * layout.size for layout in layouts)
    print(f"{name}: {len(layouts)} layers, {weights / 1e9:.2f} G weights, {held / 1e9:.2f} GB remembered in all")
    for ranks in RANKS:
        print(
            f"  {ranks:4} ranks: {held / ranks / 1e6:9.1f} MB a rank; a step gathers {gathered / 1e6:9.1f} MB "
            f"({gathered * (ranks - 1) / ranks / 1e6:9.1f} received), sums {summed / 1e6:.2f} MB, "
            f"{products / ranks / 1e12:.3f} TFLOP a rank"
        )


if __name__ == "__main__":
    show("full weights", lay_out_model())
    show(f"adapters of rank {ADAPTER}", lay_out_adapters())
