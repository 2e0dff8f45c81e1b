"""Phases of a training in which less may be lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """Written by its owner next."""
