"""The pages in the root of the repository are pages of the site too, from one source.

Links in the files are relative to the repository; on the site they lead to its pages.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    f"{name}.md": f"{name.lower()}.md"
    for name in (
        "CHANGELOG", "CONTRIBUTING", "CONVENTIONS", "DISTRIBUTED", "FINDINGS", "PRECISION",
        "SECURITY", "SWEEP",
    )
} | {"README.md": "index.md"}
"""File -> page."""

LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files, with CONVENTIONS.md as conventions.md, and so on."""
    root = Path(config.config_file_path).parent
    for name, page in PAGES.items():
        text = LINK.sub(_link, (root / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """A page of `docs/`, whose links to files outside that folder lead to pages of the site."""
    return LINK.sub(lambda found: outward(found, posixpath.dirname(page.file.src_uri)), markdown)


def outward(found: re.Match[str], folder: str) -> str:
    """A link of a page in this folder of `docs/`, as a link on the site, or only its text.

    >>> outward(LINK.search("[Proofs](../../notebooks/04_proofs.ipynb)"), "explanation")
    '[Proofs](../notebooks/04_proofs.md)'
    >>> outward(LINK.search("[Export](export.md)"), "how-to")
    '[Export](export.md)'
    >>> outward(LINK.search("[its tests](../tests/data)"), "")
    'its tests'
    """
    text, target = found.groups()
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    if path.startswith("docs/"):
        return found[0]
    place = place_of(path)
    return f"[{text}]({posixpath.relpath(place, folder or '.')})" if place else text


def _link(found: re.Match[str]) -> str:
    """A link to a page of the site, or only its text where the file is not on the site."""
    text, target = found.groups()
    place = place_of(target)
    return f"[{text}]({place})" if place else text


def place_of(target: str) -> str:
    """Where a file of the repository is on the site, or an empty string.

    >>> place_of("docs/tutorial.md"), place_of("notebooks/04_proofs.ipynb"), place_of("SWEEP.md")
    ('tutorial.md', 'notebooks/04_proofs.md', 'sweep.md')
    >>> place_of("tests/benchmarks")
    ''
    """
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.endswith(".ipynb"):
        return target.replace(".ipynb", ".md")
    return PAGES.get(target, "")
