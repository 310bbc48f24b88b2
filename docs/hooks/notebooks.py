"""Notebooks become pages: each is run in its folder, and written in Markdown with its pictures.

`EXECUTE_NOTEBOOKS=false mkdocs serve` skips the execution, and with it the results.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

FOLDER = "notebooks"

SECONDS = 120
"""The time limit of a cell."""

AT_ONCE = 2
"""Notebooks that run at the same time, each in a process of its own."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files, with a page for each notebook and its pictures."""
    folder = Path(config.config_file_path).parent / FOLDER
    run = executed if config.extra["execute_notebooks"] else read
    paths = sorted(folder.glob("*.ipynb"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for path, notebook in zip(paths, pool.map(run, paths), strict=True):
            for file in pages(path.stem, notebook, config):
                files.append(file)
    return files


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook without results."""
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> nbformat.NotebookNode:
    """A notebook with results, if the packages that it requires are there; an error in a cell ends
    the build.
    """
    notebook = read(path)
    if not all(map(find_spec, notebook.metadata.get("requires", ()))):
        return notebook
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=SECONDS, resources=where, coalesce_streams=True)
    return client.execute()


def pages(name: str, notebook: nbformat.NotebookNode, config: MkDocsConfig) -> Iterator[File]:
    """The page of a notebook, whose links to `docs/` lead to pages, and its pictures."""
    names = {"unique_key": name, "output_files_dir": name}
    text, made = MarkdownExporter().from_notebook_node(notebook, resources=names)
    text = text.replace("](../docs/", "](../")
    yield File.generated(config, f"{FOLDER}/{name}.md", content=text)
    for file, data in made["outputs"].items():
        yield File.generated(config, f"{FOLDER}/{file}", content=data)
