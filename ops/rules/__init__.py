"""Rules: the declarations of all operators, one family a file."""

from . import (  # noqa: F401  (each family registers its declarations)
    classical,
    contrib,
    convolution,
    elementwise,
    indexing,
    layout,
    matmul,
    normalization,
    quantization,
    recurrent,
    reductions,
    regions,
    resize,
    sampling,
    zeros,
)
