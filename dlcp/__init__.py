"""dlcp: a loss-tolerant, priority-aware transport for data-parallel training.

Importing this package loads neither torch nor the compiled engine. `dlcp.transport` holds endpoints and
settings; `dlcp.switch` is the switch half.
"""

__version__ = "0.1.0"
