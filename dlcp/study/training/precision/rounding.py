"""What a code makes of values: the twin of dlcp.torch.codec without the bytes between, for finite values of any shape.

A test holds it to decode(encode(values)), bit for bit; groups of another size, and scales by least squares, are the
study's own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dlcp.study.training.precision.arm import Scale
from dlcp.torch.codec import FLOAT_CODECS
from dlcp.transport.coded import CODECS, GROUP_VALUES

_REFITS = 2
"""Of scales by least squares: codes and scale in turn; more alters little."""


def rounded(
    values: Tensor, codec: str, scale_values: int = GROUP_VALUES, scale_by: Scale = "largest"
) -> Tensor:
    """float32 [..., 64]: `values` (float32, finite; a group in the last dimension) after being coded and decoded.

    `scale_values`: share a scale, if the codec has any.

    Where a group is not finite, it comes back as NaN in whole or in part: a training that diverged.
    """
    groups = values.reshape(-1, scale_values)
    if not CODECS[codec].is_scaled:
        largest = torch.finfo(FLOAT_CODECS[codec]).max
        return groups.clamp(-largest, largest).to(FLOAT_CODECS[codec]).float().view(values.shape)
    code_max = CODECS[codec].code_max
    scale = _scales(groups, code_max)
    units = _units(groups, scale, codec)
    for _ in range(_REFITS if scale_by == "least squares" else 0):
        fitted = (groups * units).sum(1, keepdim=True) / units.square().sum(1, keepdim=True)
        scale = torch.where(scale > 0, fitted, 0.0).bfloat16().float()
        units = _units(groups, scale, codec).clamp_(-code_max, code_max)
    return units.mul_(scale).view(values.shape)


def _units(groups: Tensor, scale: Tensor, codec: str) -> Tensor:
    """Codes, as float32."""
    units = groups * torch.where(scale > 0, 1.0 / scale, 0.0)
    return units.to(FLOAT_CODECS[codec]).float() if codec in FLOAT_CODECS else units.round_()


def _scales(groups: Tensor, code_max: float) -> Tensor:
    """float32 [groups, 1]: the largest magnitude over the largest code, as a bfloat16, rounded up."""
    largest = groups.abs().amax(1, keepdim=True)
    inverse = float(torch.tensor(1.0) / code_max)
    up = (((largest * inverse).view(torch.int32) + 0xFFFF) >> 16 << 16).view(torch.float32)
    return torch.where(largest < code_max * torch.finfo(torch.float32).tiny, 0.0, up)
