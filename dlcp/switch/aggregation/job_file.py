"""The file of jobs: [[job]] tables in TOML, read and written. What is in them, JobRequest knows (entries.py)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from dlcp.errors import SettingsError
from dlcp.toml_text import toml_key, toml_value


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


def job_text(tables: Iterable[Mapping[str, Any]]) -> str:
    """The text of which `job_tables` makes these tables, as JobRequest.to_table gives them."""
    lines: list[str] = []
    for table in tables:
        for name, one in (("job", table), *(("job.worker", worker) for worker in table["worker"])):
            lines += ["", f"[[{name}]]"]
            lines += [
                f"{toml_key(key)} = {toml_value(value)}" for key, value in one.items() if key != "worker"
            ]
    return "\n".join(lines[1:]) + "\n"
