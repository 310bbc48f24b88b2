"""Over data: the functions of a model at a point as the public face has them, taking data too.

Where a point is expected, data may stand: a list of points, a generator function, arrays with
`batch_size=`, an `.npz` file. What is made of each batch is stacked (`linearize`) or composed as
`reduction=` says, and only one batch is held at a time: see `modes.data`. With `client=`
the workers of a cluster share out the batches: see `modes.distributed`.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from ..jacobians import Jacobian
from . import hessian as hessians
from . import linearize as linearizing
from .curvature import empirical_fisher as empirical
from .curvature import fisher as fishers
from .curvature import gauss_newton as gauss_newtons
from .curvature import ntk as ntks
from .data.rows import by_tensor
from .data.taking import takes_data

linearize = takes_data("stack")(linearizing.linearize)
hessian = takes_data()(hessians.hessian)
gauss_newton = takes_data()(gauss_newtons.gauss_newton)
fisher = takes_data()(fishers.fisher)
empirical_fisher = takes_data()(empirical.empirical_fisher)
gram = takes_data("sum")(ntks.gram)


@wraps(ntks.ntk)
def ntk(model: Any, inputs: Any, others: Any = None, **options: Any) -> Jacobian:
    """K = J(x) J(x')ᵀ, where x and x' may be data: then K is a product of stacked Jacobians."""
    J, tensors = by_tensor(linearize(model, inputs, **options))
    if others is None:
        return ntks.kernel(J, tensors)
    return J @ by_tensor(linearize(model, others, **options))[0].T


for _function in (linearize, hessian, gauss_newton, fisher, empirical_fisher, gram, ntk):
    _function.__module__ = __name__  # where a pickle finds the one that takes data
