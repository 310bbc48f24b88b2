"""The reference finds the package through the link `.ci/onnxjac`; readers are shown the file."""


def on_page_content(content: str, **_: object) -> str:
    """The page without the prefix `.ci/onnxjac/` in file names."""
    return content.replace(".ci/onnxjac/", "")
