"""dlcp's errors in the form that programs written for torch.distributed catch.

Every error is of its own dlcp class (CollectiveTimeoutError, PeerFailedError, ...) and also a DistBackendError, as
NCCL's are. The classes that are both are made when they are first needed: dlcp.errors knows no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, cast

import torch.distributed as dist

from dlcp.errors import DlcpError


def for_torch(error: DlcpError) -> DlcpError:
    """The same error, also a torch.distributed.DistBackendError. One that is already is returned as it is."""
    if isinstance(error, dist.DistBackendError):
        return error
    kind: type[DlcpError] = _both(cast("Hashable", type(error)))
    both = kind(*error.args)
    both.__dict__.update(error.__dict__)
    both.__cause__, both.__context__ = error.__cause__, error.__context__
    return both


@functools.cache
def _both(kind: Any) -> type[DlcpError]:
    # Under the same name and module: what a log shows is the documented class.
    return cast(
        "type[DlcpError]",
        type(
            kind.__name__,
            (kind, dist.DistBackendError),
            {"__module__": kind.__module__, "__doc__": kind.__doc__},
        ),
    )
