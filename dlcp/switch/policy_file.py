"""A policy with the text it was read from, so that what a target cannot do can be said with the line it stands in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlcp.switch.policy import Policy, PolicyError


@dataclass(frozen=True)
class PolicyFile:
    """A policy, where it lies and how it is written there."""

    path: str
    text: str
    policy: Policy

    @classmethod
    def load(cls, path: Path | str) -> PolicyFile:
        """PolicyError: the file cannot be read, or is no policy that can be carried out."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise PolicyError(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise PolicyError(f"{path}: not UTF-8: {error}") from None
        return cls(str(path), text, Policy.of_file(text, path))
