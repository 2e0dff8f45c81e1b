"""A private network on one machine: see netlab."""

from dlcp.lab.netlab import Lab, LabError, Loss, missing

__all__ = ["Lab", "LabError", "Loss", "missing"]
