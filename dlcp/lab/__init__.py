"""A private network on one machine: see netlab."""

from dlcp.lab.losses import Arrivals, Loss
from dlcp.lab.namespaces import LabError
from dlcp.lab.netlab import Lab, Link, missing

__all__ = ["Arrivals", "Lab", "LabError", "Link", "Loss", "missing"]
