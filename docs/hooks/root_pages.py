"""The four pages in the root of the repository are pages of the site too, from one source.

Links in a page are relative to its file in the repository; on the site they lead to its pages.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md",
         "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}  # fmt: skip
"""File in the root -> page."""

LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files, with README.md as index.md, and so on."""
    root = Path(config.config_file_path).parent
    for name, page in PAGES.items():
        text = (root / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=linked(text, "")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """A page of `docs/`; the pages of the root have their links already."""
    if page.file.src_uri in PAGES.values():
        return markdown
    return linked(markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)))


def linked(text: str, folder: str) -> str:
    """The text of a file in this folder of the repository, with links as the site has them.

    A link to a file that is not on the site is only its text there.

    >>> linked("[Proofs](../../notebooks/04_proofs.ipynb)", "docs/explanation")
    '[Proofs](../notebooks/04_proofs.md)'
    >>> linked("[Export](export.md), [Security](../../SECURITY.md#limits)", "docs/how-to")
    '[Export](export.md), [Security](../security.md#limits)'
    >>> linked("[its tests](tests/data), [tutorial](docs/tutorial.md)", "")
    'its tests, [tutorial](tutorial.md)'
    """

    def replaced(link: re.Match[str]) -> str:
        label, target = link.groups()
        path, hash_, anchor = posixpath.join(folder, target).partition("#")
        place = place_of(posixpath.normpath(path))
        start = posixpath.relpath(folder or "docs", "docs")
        return f"[{label}]({posixpath.relpath(place, start)}{hash_}{anchor})" if place else label

    return LINK.sub(replaced, text)


def place_of(path: str) -> str:
    """Where a file of the repository is on the site, or an empty string.

    >>> place_of("docs/tutorial.md"), place_of("notebooks/04_proofs.ipynb"), place_of("README.md")
    ('tutorial.md', 'notebooks/04_proofs.md', 'index.md')
    >>> place_of("tests/benchmarks")
    ''
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".ipynb"):
        return path.replace(".ipynb", ".md")
    return PAGES.get(path, "")
