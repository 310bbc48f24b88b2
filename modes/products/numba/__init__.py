"""numba as the engine of products: elementwise, broadcast and stencil nodes fused into loops.

`groups` says which nodes are computed where they are read, `source` writes the loop of a group,
`kernels` compiles it. The rest is NumPy.
"""

from __future__ import annotations

from .assemble import compile

__all__ = ["compile"]
