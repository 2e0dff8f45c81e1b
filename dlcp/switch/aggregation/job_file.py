"""The file of jobs: [[job]] tables in TOML, before anybody looks at what is in them."""

from __future__ import annotations

import tomllib
from typing import Any

from dlcp.errors import SettingsError


def job_tables(text: str) -> list[dict[str, Any]]:
    """The tables, in order. SettingsError: it is no such file."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"not TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # Python's own limits
        raise SettingsError(f"no jobs: {error}") from None
    for key in document:
        if key != "job":
            raise SettingsError(f"{key} is not known; accepted: job")
    tables = document.get("job", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SettingsError("job is no list of tables; accepted: [[job]]")
    return tables
