"""Collectives of torch.distributed over dlcp and over Gloo, the same code on both, in turn in one run."""
