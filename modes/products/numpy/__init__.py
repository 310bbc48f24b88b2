"""NumPy as the engine of products: a program of calls that write into memory laid out beforehand.

`places` says where the entries of a tensor lie, `wants` lets producers write where consumers read,
`assemble` turns nodes into instructions (a file per family), `stencils` several of them into one,
`program` runs them.
"""

from . import (  # noqa: F401  (each module enters its operators into the table)
    convolution,
    deconvolution,
    einsum,
    elementwise,
    gathering,
    matmul,
    moves,
    padding,
    sums,
)
from .program import Program
from .stencils import compile

__all__ = ["Program", "compile"]
