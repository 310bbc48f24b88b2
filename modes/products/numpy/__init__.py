"""NumPy as the engine of products: a program of calls that write into memory planned in advance.

`places` describes where the entries of a tensor lie, `destinations` lets producers write where
consumers read, `assemble` turns nodes into instructions (a file per family), `program` runs them.
"""

from . import (  # noqa: F401  (each module registers its operators in the table)
    convolution,
    matmul,
    moves,
)
from .assemble import compile
from .program import Program

__all__ = ["Program", "compile"]
