"""What a code makes of values: the twin of dlcp.torch.codec without the bytes between, for finite values of any shape.

A test holds it to decode(encode(values)), bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dlcp.transport.coded import CODECS, GROUP_VALUES

_FLOATS = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


def rounded(values: Tensor, codec: str) -> Tensor:
    """float32 [..., 64]: `values` (float32, finite; a group in the last dimension) after being coded and decoded.

    Where a group is not finite, it comes back as NaN in whole or in part: a training that diverged.
    """
    groups = values.reshape(-1, GROUP_VALUES)
    if not CODECS[codec].is_scaled:
        largest = torch.finfo(_FLOATS[codec]).max
        return groups.clamp(-largest, largest).to(_FLOATS[codec]).float().view(values.shape)
    scale = _scales(groups, CODECS[codec].code_max)
    units = groups * torch.where(scale > 0, 1.0 / scale, 0.0)
    units = units.to(_FLOATS[codec]).float() if codec in _FLOATS else units.round_()
    return units.mul_(scale).view(values.shape)


def _scales(groups: Tensor, code_max: float) -> Tensor:
    """float32 [groups, 1]: the largest magnitude over the largest code, as a bfloat16, rounded up."""
    largest = groups.abs().amax(1, keepdim=True)
    inverse = float(torch.tensor(1.0) / code_max)
    up = (((largest * inverse).view(torch.int32) + 0xFFFF) >> 16 << 16).view(torch.float32)
    return torch.where(largest < code_max * torch.finfo(torch.float32).tiny, 0.0, up)
