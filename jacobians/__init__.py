"""What a derivative is: linear operators between tensors, and their algebra."""

from . import simplify as _simplify  # noqa: F401  (fills the table of products)
from .arrays import (
    Array,
    Op,
    Shape,
    common,
    dtype_of,
    lead,
    prod_text,
    reading,
    reading_of,
    shape_of,
    size,
)
from .base import Conjugate, Jacobian
from .block import Block, stack
from .chosen import chosen
from .contraction import Contraction, label_sizes
from .convolution import Convolution, convolution_of
from .cumulative import Cumulative
from .dag import Dag, Edge
from .dense import BlockDiagonal, Dense, LowRank
from .diagonal import Diagonal
from .fourier import Fourier
from .geometry import Geometry
from .identity import Cast, Identity, Scalar, Zero
from .joint import Joint, Part
from .kron import Eye, Kron, implicit_kron, transposed
from .layout import Broadcast, Permutation, Reshape, SumTo, broadcast
from .outer import Inner, Outer
from .products import Product
from .selection import Embed, Scatter, Slice, Take, slab, take_flat
from .sums import Sum

__all__ = [
    "Array", "Block", "BlockDiagonal", "Broadcast", "Cast", "Conjugate", "Contraction",
    "Convolution", "Cumulative", "Dag", "Dense", "Diagonal", "Edge", "Embed", "Eye", "Fourier",
    "Geometry", "Identity", "Inner", "Jacobian", "Joint", "Kron", "LowRank", "Op", "Outer",
    "Part", "Permutation", "Product", "Reshape", "Scalar", "Scatter", "Shape", "Slice", "Sum",
    "SumTo", "Take", "Zero", "broadcast", "chosen", "common", "convolution_of", "dtype_of",
    "implicit_kron", "label_sizes", "lead", "prod_text", "reading", "reading_of", "shape_of",
    "size", "slab", "stack", "take_flat", "transposed",
]  # fmt: skip
