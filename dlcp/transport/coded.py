"""Collectives of coded values: few bits each, in groups with a scale (native/collective/codec.hpp).

    parts = group_parts(groups, size, "int4")            # where each rank's part of the groups lies, in bytes
    work = communicator.coded_all_reduce(outputs, inputs, CodedRules("int4", before, after))

The rank that adds a part decodes all contributions, adds its residual, and codes the sum once; every rank, the owner
too, gets that code. So all replicas decode the same bits. Over a hub its cores are the owners.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlcp import _native
from dlcp.errors import ArgumentError
from dlcp.transport.hub.coded import KeptAtHub
from dlcp.transport.span import Span

CODECS: Mapping[str, _native.CodecTraits] = {each.name: each for each in _native.CODECS}
"""By name: what a value is coded in."""

CodecTraits = _native.CodecTraits
"""A row of CODECS: its name, `bits` of a code, `code_max`, `is_scaled`, and `group_bytes`."""

# The kernels, on raw memory whose owner the caller is; codec.hpp says what they do. What can be seen to be wrong raises
# ValueError.
encode_runs = _native.encode_runs
"""encode_runs(codec, values, runs, coded, before, after, factor): codes float32 values, with what was kept."""
decode_runs = _native.decode_runs
"""decode_runs(codec, coded, runs, values): float32 values of codes."""
add_groups = _native.add_groups
"""add_groups(codec, coded, groups, sums): adds the values of codes to float32 sums."""

GROUP_VALUES: int = _native.GROUP_VALUES
"""Values that share a scale."""


def codec_traits(codec: object, argument: str = "codec") -> _native.CodecTraits:
    """What is known of a codec. Raises ArgumentError, which calls it as its `argument` is called: there is none."""
    if not isinstance(codec, str) or codec not in CODECS:
        raise ArgumentError(f"{argument} is {codec!r}; accepted: {', '.join(CODECS)}")
    return CODECS[codec]


def group_parts(groups: int, size: int, shares: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """First group and end of the part that each of `size` ranks adds: as equal as whole groups can be.

    `shares`: by rank, what part of the groups it adds, of the sum of all shares; whole groups, some perhaps none.
    """
    if shares is not None:
        ends = [groups * end // sum(shares) for end in itertools.accumulate(shares, initial=0)]
        return list(itertools.pairwise(ends))
    step, rest = divmod(groups, size)
    ends = [step * rank + min(rank, rest) for rank in range(size + 1)]
    return [(ends[rank], ends[rank + 1]) for rank in range(size)]


@dataclass(frozen=True, slots=True)
class CodedRules:
    """What a coded collective's memory holds, and what its owners keep."""

    codec: str
    """A name in CODECS."""
    before: Span | None = None
    """f32, one per value of this rank's part, padded to whole groups: what its last sum could not say. Added to this
    one, times `factor`. With `after`, or None."""
    after: Span | None = None
    """As `before`, whose memory it may be: what this sum's code leaves."""
    factor: float = 1.0
    values: Span | None = None
    """f32, as `before`: where the sum of this rank's part goes, not coded. None: it is coded."""
    kept: KeptAtHub | None = None
    """What the hub keeps in place of `before` and `after`, times `factor`; of a sum that goes there."""
    summed: Span | None = None
    """u8. Of a reduce-scatter: where a hub puts the code of this rank's part of the sum, in place of `values`, if it
    makes the sum; Work.algorithm says so. None: ranks make it."""

    def native(self) -> _native.CodedRules:
        """As native code takes it."""
        return _native.CodedRules(
            codec_traits(self.codec).codec,
            _address(self.before),
            _address(self.after),
            self.factor,
            _address(self.values),
        )

    def sum_alone(self, contribution: Span, coded: Span | None) -> None:
        """What the owner makes of its own contribution, if there is no other rank."""
        kind = codec_traits(self.codec)
        _native.sum_groups(
            kind.codec,
            [contribution.address],
            contribution.nbytes // kind.group_bytes,
            1,
            _address(coded),
            _address(self.values),
            _address(self.before),
            _address(self.after),
            self.factor,
        )

    def check(self, part_nbytes: int) -> None:
        """Raises ArgumentError unless residual and values fit a part of so many coded bytes."""
        needed = part_nbytes // codec_traits(self.codec).group_bytes * GROUP_VALUES * 4
        for name in ("before", "after", "values"):
            span = getattr(self, name)
            if span is not None and span.nbytes != needed:
                raise ArgumentError(
                    f"{name} has {span.nbytes} bytes; accepted: {needed}, f32 of the own part's groups"
                )
        if self.summed is not None and self.summed.nbytes != part_nbytes:
            raise ArgumentError(
                f"summed has {self.summed.nbytes} bytes; accepted: {part_nbytes}, as the own part's codes"
            )
        if (self.before is None) != (self.after is None):
            raise ArgumentError("one of before and after is None; accepted: both, or neither")
        if self.kept is not None:
            raise ArgumentError("kept is at a hub, and this sum is the ranks'; accepted: before and after")
        if self.summed is not None and self.values is None:
            raise ArgumentError("summed is a hub's, and this sum is the ranks'; accepted: values beside it")


def _address(span: Span | None) -> int | None:
    return None if span is None else span.address
