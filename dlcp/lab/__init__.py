"""A private network on one machine: see netlab."""

from dlcp.lab.link import Arrivals, Link, Loss
from dlcp.lab.netlab import Lab, LabError, missing

__all__ = ["Arrivals", "Lab", "LabError", "Link", "Loss", "missing"]
