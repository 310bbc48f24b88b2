"""Jacobians: linear operators between tensors, and their algebra."""

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
from .closed import inverse_of, slogdet_of
from .contraction import Contraction, label_sizes
from .convolution import Convolution, Geometry, convolution_of
from .dag import Block, Dag, Edge, Joint, Part, between_types, chosen, stack
from .elementwise import Cast, Diagonal, Identity, Scalar, Zero
from .kron_sums import Sylvester
from .layout import (
    Broadcast,
    Embed,
    Permutation,
    Reshape,
    Scatter,
    Slice,
    SumTo,
    Take,
    broadcast,
    slab,
    take_flat,
)
from .matrices import BlockDiagonal, Dense, Eye, Kron, LowRank, implicit_kron, transposed
from .products import Product
from .sums import Sum
from .transforms import Circulant, Cumulative, Fourier

__all__ = [
    "Array", "Block", "BlockDiagonal", "Broadcast", "Cast", "Circulant", "Conjugate",
    "Contraction", "Convolution", "Cumulative", "Dag", "Dense", "Diagonal", "Edge", "Embed",
    "Eye", "Fourier", "Geometry", "Identity", "Jacobian", "Joint", "Kron", "LowRank", "Op",
    "Part", "Permutation", "Product", "Reshape", "Scalar", "Scatter", "Shape", "Slice", "Sum",
    "SumTo", "Sylvester", "Take", "Zero", "between_types", "broadcast", "chosen", "common",
    "convolution_of", "dtype_of", "implicit_kron", "inverse_of", "label_sizes", "lead", "prod_text",
    "reading", "reading_of", "shape_of", "size", "slab", "slogdet_of", "stack", "take_flat",
    "transposed",
]  # fmt: skip
