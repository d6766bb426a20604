"""The memory of a layer: its stored directions, and the products with and among them."""
