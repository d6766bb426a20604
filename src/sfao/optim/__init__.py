"""SFAO and Gate: the mathematics of `sfao.gating` inside the contract of torch.optim."""
