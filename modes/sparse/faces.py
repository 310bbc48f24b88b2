"""Faces: what stands behind an operator that only adds names, an engine or a plan to another."""

from __future__ import annotations

from functools import singledispatch

from ...jacobians import Jacobian
from ..curvature.symmetric import Symmetric
from ..elimination.adaptive import Adaptive
from ..hessian import Hessian
from ..linearization import Linearization
from ..products.compiled import Compiled


@singledispatch
def bare(operator: Jacobian) -> Jacobian:
    """The operator without its faces, its numbers where the rules put them."""
    return operator


@bare.register(Linearization)
@bare.register(Adaptive)
def _(operator: Linearization | Adaptive) -> Jacobian:
    return operator.dag


@bare.register
def _(operator: Hessian) -> Jacobian:
    return operator.J.dag


@bare.register(Compiled)
@bare.register(Symmetric)
def _(operator: Compiled | Symmetric) -> Jacobian:
    return bare(operator.operator)
