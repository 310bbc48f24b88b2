"""The reference entry of a name: its docstring, with the examples as code."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)
"""An example: from a line with a prompt to the next empty line."""

TAKES_DATA = "modes.curvature.over_data"
"""The module whose functions are decorated versions of others, which have the docstrings."""


class Docstrings(griffe.Extension):
    """Makes docstrings valid Markdown, and finds the docstrings that Python would find."""

    def __init__(self) -> None:
        self.functions: dict[str, griffe.Function] = {}

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put the examples between fences."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Remember functions of packages, which modules of the same name may hide."""
        if func.parent is not None and func.parent.is_module:
            self.functions[func.path] = func

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Resolve every name to the object that it is at run time."""
        decorated(pkg[TAKES_DATA])
        loader.resolve_aliases(implicit=True)  # while names of modules still lead to them
        self.unhide(pkg)

    def unhide(self, package: griffe.Module) -> None:
        """`from .trace import trace` in a package means the function, not the module."""
        for name, member in list(package.members.items()):
            if not isinstance(member, griffe.Module):
                continue
            self.unhide(member)
            if package.imports.get(name) == f"{member.path}.{name}":
                imported(package, name, member[name])
            elif member.path in self.functions:
                package.set_member(name, self.functions[member.path])


def decorated(module: griffe.Module) -> None:
    """`f = decorator(...)(g)` is documented as g."""
    for name, member in list(module.members.items()):
        if isinstance(member, griffe.Attribute) and isinstance(member.value, griffe.ExprCall):
            imported(module, name, member.value.arguments[0].canonical_path)


def imported(module: griffe.Module, name: str, target: str | griffe.Object) -> None:
    """Make a name of a module an alias for an object from elsewhere."""
    module.set_member(name, griffe.Alias(name, target, parent=module))


def fenced(text: str) -> str:
    """The text with its examples between fences."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
