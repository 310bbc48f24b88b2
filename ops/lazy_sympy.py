"""Lazy SymPy: onnx-ir computes with symbolic sizes by SymPy, which is imported when it first does.

`import onnx_ir` imports all of SymPy, which takes longer than all else that this package imports.
So another module stands for SymPy while onnx-ir is imported, and becomes SymPy at the first use.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

FUNCTIONS = frozenset({"Max", "Min", "Mod", "floor", "sqrt"})
"""What onnx-ir looks up while it is imported, for a table of functions."""


class ImportedWhenUsed(ModuleType):
    """SymPy, imported at the first use."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is not self:
            sympy = import_module(self.__name__)
            vars(self).update(vars(sympy))
            return getattr(sympy, name)
        if name in FUNCTIONS:
            return partial(self._call, name)
        raise AttributeError(name)

    def _call(self, name: str, *args: Any) -> Any:
        return getattr(import_module(self.__name__), name)(*args)


def import_onnx_ir() -> None:
    """Import onnx-ir without SymPy.

    Plainly if SymPy is there already, if other threads might see what stands for it, and if this
    onnx-ir reads more of SymPy than a table of functions.
    """
    if not {"onnx_ir", "sympy"}.isdisjoint(sys.modules) or threading.active_count() > 1:
        return
    stand_in = sys.modules["sympy"] = ImportedWhenUsed("sympy")
    try:
        import onnx_ir  # noqa: F401
    except (AttributeError, TypeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "onnx_ir"]:
            del sys.modules[name]
    finally:
        if sys.modules.get("sympy") is stand_in:
            del sys.modules["sympy"]


import_onnx_ir()
