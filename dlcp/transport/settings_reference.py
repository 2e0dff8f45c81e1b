"""`dlcp settings`: the table of settings for people; and what is generated from the table.

    python -m dlcp.transport.settings_reference     writes dlcp/transport/settings_fields.py and docs/settings.md

The table stands in C++ (native/engine/config.hpp, native/io/runtime_options.hpp); a test holds the two files to it.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from dlcp.arguments import Parser, add_json
from dlcp.checks import known
from dlcp.errors import SettingsError
from dlcp.transport.setting_rules import SettingRule, rules

_TYPES = {
    "boolean": "bool",
    "integer": "int",
    "number": "float",
    "class_codes": "tuple[int, ...]",
    "secret": "bytes",
}
_WIDTH = 116


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status. Raises SettingsError: there is no such setting."""
    parser = Parser(
        prog="dlcp settings",
        description="Every setting of the transport: its variable, default, what is accepted, and what it is for.",
    )
    parser.add_argument("name", nargs="*", help="a setting, or its variable; all of them if none is named")
    add_json(parser)
    options = parser.parse_args(arguments)
    names = [name.lower().removeprefix("dlcp_") for name in options.name]
    known("setting", names, rules(), error=SettingsError)
    if options.json:
        chosen = [rules()[name] for name in names] or rules().values()
        print(json.dumps({"settings": [_to_json(rule) for rule in chosen]}, indent=2))
        return 0
    for section, members in _sections():
        shown = [rule for rule in members if not names or rule.entry.name in names]
        if shown:
            print(f"{section}\n")
        for rule in shown:
            print(_help(rule))
    return 0


def fields_module() -> str:
    """The text of settings_fields.py: a dataclass with every setting, its type, default and docstring."""
    parts = [
        '"""Every setting with its type, default and meaning.\n\n'
        "Generated from the engine's table by `python -m dlcp.transport.settings_reference`; not to be edited.\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom dataclasses import dataclass, field\n\n\n'
        "@dataclass(frozen=True, kw_only=True)\nclass SettingsFields:\n"
        '    """The fields of dlcp.transport.Settings, which checks them."""\n'
    ]
    for section, members in _sections():
        parts.append(f"\n    # ---- {section.lower()} ----\n")
        parts += [_field(rule) for rule in members]
    return "".join(parts)


def reference_page() -> str:
    """The text of docs/settings.md."""
    parts = [
        "# Settings\n\n"
        "A value comes from the first of: an argument (`Settings(paths=4)`), the environment (`DLCP_` and the name in\n"
        "capitals: `DLCP_PATHS=4`), the `[transport]` table of the TOML file that `DLCP_CONFIG` names, the default. A\n"
        "unit is the end of a name: `_s` seconds, `_bps` bits per second. `dlcp settings` prints this table;\n"
        "`dlcp settings NAME` one row of it.\n\n"
        "```python\nfrom dlcp.transport import Settings\n\n"
        "settings = Settings.load(peer_timeout_s=30)\nprint(settings.paths, settings.peer_timeout_s)\n```\n\n"
        "Generated from the engine's table by `python -m dlcp.transport.settings_reference`; not to be edited.\n"
    ]
    for section, members in _sections():
        parts.append(
            f"\n## {section}\n\n| setting | default | accepted | meaning |\n|---|---|---|---|\n"
            + "".join(
                f"| `{rule.entry.name}` | {_code(_default(rule))} | {rule.accepted_or_none} | {rule.entry.sentence} |\n"
                for rule in members
            )
        )
    return "".join(parts)


def write(repository: Path) -> None:
    """Writes both generated files."""
    (repository / "dlcp" / "transport" / "settings_fields.py").write_text(fields_module())
    (repository / "docs" / "settings.md").write_text(reference_page())


def _sections() -> Iterator[tuple[str, list[SettingRule]]]:
    for section, members in groupby(rules().values(), key=lambda rule: rule.entry.section):
        yield section, list(members)


def _default(rule: SettingRule) -> str:
    """As it is written in the environment."""
    default = rule.default
    if default is None:
        return rule.none or ""
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _variable(rule: SettingRule) -> str | None:
    return None if rule.entry.kind == "secret" else f"DLCP_{rule.entry.name.upper()}"


def _to_json(rule: SettingRule) -> dict[str, Any]:
    return {
        "name": rule.entry.name,
        "section": rule.entry.section,
        "variable": _variable(rule),
        "default": rule.default,
        "unit": rule.unit or None,
        "accepted": rule.accepted_or_none,
        "meaning": rule.entry.sentence,
    }


def _help(rule: SettingRule) -> str:
    entry = rule.entry
    unit = f" ({rule.unit})" if rule.unit else ""
    lines = [
        f"  {entry.name}{unit}    {_variable(rule) or 'only an argument'}",
        *_indented(f"default {_default(rule) or 'empty'}; accepted: {rule.accepted_or_none}"),
        *_indented(entry.sentence),
    ]
    return "\n".join(lines) + "\n"


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)


def _field(rule: SettingRule) -> str:
    entry, default = rule.entry, rule.default
    type_ = _TYPES.get(entry.kind, "str") + (" | None" if rule.none else "")
    value = f'"{default}"' if isinstance(default, str) else repr(default)
    if entry.kind == "secret":
        value = "field(default=None, repr=False)"
    accepted = "" if entry.kind == "boolean" else f" Accepted: {rule.accepted_or_none}."
    lines = textwrap.wrap(
        entry.sentence + accepted, _WIDTH - 6, break_long_words=False, break_on_hyphens=False
    )
    body = lines[0] + '"""' if len(lines) == 1 else "\n    ".join([*lines, '"""'])
    return f'    {entry.name}: {type_} = {value}\n    """{body}\n'


if __name__ == "__main__":
    write(Path(__file__).resolve().parents[2])
    sys.exit(0)
