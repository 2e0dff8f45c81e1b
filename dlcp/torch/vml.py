"""torch's own square root of float32 on this host, for optimizers that native code runs.

Where torch was built with MKL it leaves square roots to its vector library (VML), which does not round all of them to
nearest: on AMD's processors every fifth is the neighbour. The last bits of Adam's weights depend on it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

_SAMPLE = 4096


@cache
def vml_square_root() -> int | None:
    """The address of VML's function in libtorch, for `_native.Optimizer.step`.

    None: torch rounds roots to nearest, as native code does by itself, or its function is not to be found. In the
    latter case steps of Adam differ from torch's in last bits.
    """
    # All significands that matter: two octaves, since a root's depends on whether the exponent is odd.
    sample = torch.linspace(1, 4, _SAMPLE, dtype=torch.float32)
    wanted = sample.sqrt()
    if torch.equal(wanted, sample.double().sqrt().float()):
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        function = library.VMSSQRT_
    except (OSError, AttributeError):
        return None
    found = torch.empty_like(sample)
    count, mode = ctypes.c_int(_SAMPLE), ctypes.c_int64(0x2 | 0x140000 | 0x100)
    function(
        ctypes.byref(count),
        ctypes.c_void_p(sample.data_ptr()),
        ctypes.c_void_p(found.data_ptr()),
        ctypes.byref(mode),
    )
    if not torch.equal(found, wanted):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
