"""Gradients of FSDP2: a reduce-scatter by a recipe, or an exact one whose sums a recipe exchanges between hosts."""
