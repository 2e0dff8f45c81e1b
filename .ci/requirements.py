"""Prints the requirements named in pyproject.toml: `requirements.py dependencies test lint`."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for group in sys.argv[1:]:
    names = project["dependencies"] if group == "dependencies" else project["optional-dependencies"][group]
    print("\n".join(names))
