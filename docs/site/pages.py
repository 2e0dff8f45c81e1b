"""What the site has beside docs/: files of the repository's root as pages, and a reference made from the code.

mkdocs.yml names this file as a hook. Nothing is written into docs/: the pages exist while the site is built. Their
links, and those of docs/ to them, are rewritten, so that each markdown file reads well in the repository too. At the
end the pages that were built are searched for anything that a browser would fetch from elsewhere.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Files outside docs/, by the page that each becomes.
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
    "examples/simulator.ipynb": "simulator/notebook.md",
    "p4/aggregation.md": "aggregation.md",
    "p4/README.md": "p4.md",
}
# Packages by the page of their reference, and the file that lists their public names.
PACKAGES = {
    "reference/torch.md": ("dlcp.torch", "dlcp/torch/__init__.pyi"),
    "reference/numpy.md": ("dlcp.numpy", None),
    "reference/jax.md": ("dlcp.jax", None),
    "reference/transport.md": ("dlcp.transport", "dlcp/transport/__init__.py"),
    "reference/errors.md": ("dlcp.errors", None),
    "reference/switch.md": ("dlcp.switch", "dlcp/switch/__init__.py"),
    "reference/lab.md": ("dlcp.lab", "dlcp/lab/__init__.py"),
    "reference/simulator.md": ("dlcp_sim", None),
}
COMMANDS = "reference/commands.md"
GENERATED = {*OUTSIDE.values(), *PACKAGES, COMMANDS}
"""Pages that are not in docs/."""
LINK = re.compile(r"(\]\()([^)\s:#]+)?(#[^)\s]*)?(\))")
"""A link of markdown to a file or a place of the repository."""
FETCHED = re.compile(
    r"""<(?:(?:script|img|iframe)\b[^>]*\bsrc|link\b[^>]*\bhref)=["']?(?:https?:)?//|url\(["']?https?:"""
)


# --- what mkdocs calls ------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    from mkdocs.structure.files import File

    pages = {page: _page_of_file(ROOT / source) for source, page in OUTSIDE.items()}
    pages |= {page: package_page(*package) for page, package in PACKAGES.items()}
    pages[COMMANDS] = commands_page()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """This page with links as the site has them; a study's with its picture."""
    picture = Path(page.file.src_uri).with_suffix(".png")
    drawn = (
        f"\n\n![The picture of this study]({picture.name})\n" if (ROOT / "docs" / picture).exists() else ""
    )
    return site_links(_tables_of_states(markdown), page.file.src_uri) + drawn


def on_post_build(config: Any) -> None:
    """Raises PluginError: a page would fetch something from elsewhere."""
    from mkdocs.exceptions import PluginError

    for built in sorted(Path(config.site_dir).rglob("*.html")):
        if found := FETCHED.search(built.read_text()):
            raise PluginError(f"{built}: {found[0]}… is fetched from elsewhere")


def _page_of_file(file: Path) -> str:
    text = file.read_text()
    return notebook_page(json.loads(text)) if file.suffix == ".ipynb" else text


# --- links ----------------------------------------------------------------------------------------------------


def source_of(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    return next((source for source, made in OUTSIDE.items() if made == page), f"docs/{page}")


def page_of(source: str) -> str | None:
    """The page or file of the site that a file of the repository becomes; None: it is not there."""
    return OUTSIDE.get(source) or (source.removeprefix("docs/") if source.startswith("docs/") else None)


def site_links(text: str, page: str) -> str:
    """The text of a page with links that hold on the site."""
    source, here = source_of(page), posixpath.dirname(page)

    def rewritten(link: re.Match[str]) -> str:
        if link[2] is None:
            return link[0]
        target = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2])))
        # One that leads nowhere stays, and the strict build names it.
        path = link[2] if target is None else posixpath.relpath(target, here or ".")
        return f"{link[1]}{path}{link[3] or ''}{link[4]}"

    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("`") else LINK.sub(rewritten, part) for part in parts)


def _tables_of_states(text: str) -> str:
    """State diagrams as tables, since nothing on the site draws them."""

    def table(diagram: re.Match[str]) -> str:
        arrows = re.findall(r"(\S+) --> (\S+): (.+)", diagram[1])
        return "| from | to | on |\n|---|---|---|\n" + "".join(
            f"| {a} | {b} | {on} |\n" for a, b, on in arrows
        )

    return re.sub(r"```mermaid\nstateDiagram-v2\n(.*?)```\n", table, text, flags=re.DOTALL)


# --- the notebook ---------------------------------------------------------------------------------------------


def notebook_page(notebook: dict[str, Any]) -> str:
    """The page of a notebook, whose cells run here, one after the other: what they print, and their pictures.

    Raises what a cell raises.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {}
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, cell["id"], "exec"), names)
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue()}```")
        for number in pyplot.get_fignums():
            picture, figure = io.BytesIO(), pyplot.figure(number)
            figure.savefig(picture, format="png", dpi=120)
            coded = base64.b64encode(picture.getvalue()).decode()
            parts.append(f"![{figure.axes[0].get_title()}](data:image/png;base64,{coded})")
        pyplot.close("all")
    return "\n\n".join(parts) + "\n"


# --- the reference ----------------------------------------------------------------------------------------------


def package_page(package: str, listing: str | None) -> str:
    """A page with the docstrings of all public names of a package."""
    if listing is not None:
        places = list(_listed(ROOT / listing))
    elif package == "dlcp_sim":
        places = [f"dlcp_sim.{home}.{name}" for name, home in _simulator_names()]
    else:
        places = []
    options = "    options:\n      members: false\n      heading_level: 1\n      show_root_full_path: true\n"
    if not places:
        return f"::: {package}\n    options:\n      heading_level: 1\n      show_root_full_path: true\n"
    return f"::: {package}\n{options}\n" + "".join(f"::: {place}\n\n" for place in places)


def _listed(listing: Path) -> Iterator[str]:
    """Where each name lives that a package imports to offer it."""
    for node in ast.parse(listing.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dlcp"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _simulator_names() -> Iterator[tuple[str, str]]:
    import dlcp_sim

    yield from dlcp_sim._HOME_OF.items()
    yield from ((name, "transports") for name in dlcp_sim._transports())


def commands_page() -> str:
    """A page with the help of every command and subcommand."""
    from dlcp import cli

    parts = [
        "# Commands\n\nWhat `--help` says.\n\n## dlcp\n\n",
        _fenced(_help_of(lambda: cli.main(["--help"]))),
    ]
    for name, command in cli.COMMANDS.items():
        said = _help_of(lambda run=command.run: run(["--help"]))
        parts += [f"## dlcp {name}\n\n", _fenced(said)]
        for word in _words_in(said):
            more = _help_of(lambda run=command.run, word=word: run([word, "--help"]))
            parts += [f"### dlcp {name} {word}\n\n", _fenced(more)]
    return "".join(parts)


def _words_in(text: str) -> list[str]:
    """The subcommands that a help lists, one per line, where its usage ends with a word for them."""
    listed = re.findall(r"^ {2,4}([a-z_]+)(?: {2,}\S|$)", text, re.MULTILINE)
    return listed if re.match(r"usage: .* [A-Z]+ \.\.\.\n", text) else []


def _help_of(run: Any) -> str:
    said = io.StringIO()
    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        run()
    return said.getvalue()


def _fenced(text: str) -> str:
    return f"```text\n{text.strip()}\n```\n\n"
