"""The site's pages are those that exist, and every link of the documentation leads somewhere, on the site and off."""

from __future__ import annotations

import importlib.util
import json
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "site" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = _hook()
DOCS = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
SOURCES = sorted({*PAGES.OUTSIDE, *(f"docs/{page}" for page in DOCS)})
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]


def prose(source: str) -> str:
    """Its text without code."""
    text = re.sub(r"^```.*?^```$|^ {4}.*?$", "", (ROOT / source).read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)


def anchors(source: str) -> set[str]:
    """Of its headings, as both the site and forges of code make them of plain words."""
    headings = re.findall(r"^#+ (.+)$", prose(source), re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in words}


def links(source: str) -> Iterator[str]:
    """What its markdown refers to, but for other hosts."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(source))
    yield from (target for target in found if not re.match(r"https?:|mailto:", target))


def test_navigation_names_every_page_once_and_no_other() -> None:
    named = re.findall(r"([\w/.]+\.md)$", NAVIGATION, re.MULTILINE)
    assert sorted(named) == sorted(DOCS | PAGES.GENERATED)


def test_groups_are_those_of_a_reader() -> None:
    groups = re.findall(r"^  - (.+):$", NAVIGATION, re.MULTILINE)
    assert groups == ["Start", "Tutorials", "How-to", "Reference", "Explanations"]


def test_pages_made_at_build_time_are_no_files_of_docs() -> None:
    assert {*PAGES.GENERATED} & DOCS == set()
    assert [source for source in PAGES.OUTSIDE if not (ROOT / source).is_file()] == []


@pytest.mark.parametrize("source", SOURCES)
def test_links_lead_somewhere_in_the_repository_and_on_the_site(source: str) -> None:
    wrong = []
    for link in links(source):
        path, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
        is_there = (ROOT / target).is_file() and PAGES.page_of(target) is not None
        if not is_there or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_links_between_pages_are_rewritten_for_the_site() -> None:
    text = "[a](docs/hub.md#the-service) [b](ARCHITECTURE.md) `[c](docs/no.md)` ![d](docs/switch/queue.png)"
    said = "[a](hub.md#the-service) [b](architecture.md) `[c](docs/no.md)` ![d](switch/queue.png)"
    assert PAGES.site_links(text, "index.md") == said
    assert (
        PAGES.site_links("[a](../hub.md) [b](../../README.md#x)", "switch/a.md")
        == "[a](../hub.md) [b](../index.md#x)"
    )


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """What mkdocs warns of, and a name of the reference that is not there, ends a strict build."""
    pytest.importorskip("mkdocstrings_handlers")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "reference" / "torch.html").is_file()


def test_the_notebook_runs_and_its_page_has_what_it_printed_and_its_pictures() -> None:
    pytest.importorskip("matplotlib")
    notebook = json.loads((ROOT / "examples" / "simulator.ipynb").read_text())
    assert all(not cell.get("outputs") for cell in notebook["cells"]), "stored without what it printed"
    page = PAGES.site_links(PAGES.notebook_page(notebook), "simulator/notebook.md")
    assert len(re.findall(r"^```text$", page, re.MULTILINE)) == 3
    assert len(re.findall(r"^!\[.+\]\(data:image/png;base64,\S+\)$", page, re.MULTILINE)) == 2
    assert "[Write your own](../extending.md)" in page
