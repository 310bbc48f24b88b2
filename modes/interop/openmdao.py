"""OpenMDAO: models as explicit and implicit components, with exact partial derivatives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from ...jacobians import inverse_of, shape_of
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, optional
from ..linear.linearization import Linearization
from ..model.primal.inputs import Names
from ..model.primal.model import Model
from .named import NamedFunction, block_entries
from .operators import asoperator


@validated
def to_openmdao(
    model: Model, inputs: Mapping[str, Any], *, of: Names = None, wrt: Names = None,
    states: Names = None, form: Literal["sparse", "operator"] = "sparse", engine: str | None = None,
) -> Any:  # fmt: skip
    """y = f(x) as an explicit component of OpenMDAO; with `states`, r(x, u) = 0 as an implicit one.

    It has an input for each tensor of `wrt`, an output for each tensor of `of`, of the same names,
    with a colon for each of `.*?![]`. The outputs of an implicit component are the states u, and
    the tensors of `of` their residuals, in the same order; it solves linear systems with ∂r/∂u and
    its transpose by sparse LU. Needs `onnxjac[openmdao]`.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point to start at; inputs that are in neither `wrt` nor `states` stay there.
    - `of`, `wrt`: results and arguments; by default all floating outputs and inputs.
    - `states`: the inputs u of a model of residuals.
    - `form`: `"sparse"` declares rows and columns of partials; `"operator"` gives products alone.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: as the tensors at `inputs`. Raises `InputError` without OpenMDAO, and where a name, an
    array or the shape of a residual does not fit.
    """
    explicit, implicit = components()
    f = NamedFunction(model, inputs, of, wrt, states, engine)
    return (implicit if f.states else explicit)(f, form == "operator")


class Component:
    """The part of a component that is the same for both kinds."""

    def __init__(self, f: NamedFunction, matrix_free: bool) -> None:
        super().__init__()
        self.f, self.matrix_free = f, matrix_free
        values, _ = f.at_start()
        self.ends = {name: f.start[name] for name in f.states} or values
        shapes = [[shape_of(x) for x in side.values()] for side in (values, self.ends)]
        if shapes[0] != shapes[1]:
            raise InputError(f"the states have shapes {shapes[1]}, their residuals {shapes[0]}: "
                             "name them by of= and states= in the same order")  # fmt: skip
        f.keys.update(zip(values, self.ends, strict=True))
        f.keys = {name: re.sub(r"[.*?!\[\]]", ":", key) for name, key in f.keys.items()}

    def setup(self: Any) -> None:
        keys = self.f.keys
        for name, x in self.f.start.items():
            if name not in self.ends:
                self.add_input(keys[name], x)
        for name, x in self.ends.items():
            self.add_output(keys[name], x)
        self.blocks = [] if self.matrix_free else [*block_entries(self.f.at_start()[1])]
        for of, wrt, rows, columns, _ in self.blocks:
            self.declare_partials(keys[of], keys[wrt], rows=rows, cols=columns)

    def fill(self, partials: Any, J: Linearization) -> None:
        entries = J.tosparse().data
        for of, wrt, _, _, places in self.blocks:
            partials[self.f.keys[of], self.f.keys[wrt]] = entries[places]

    def multiply(self, J: Linearization, mode: str, x: tuple[Any, ...], y: tuple[Any, ...]) -> None:
        self.f.add_product(J, x, y) if mode == "fwd" else self.f.add_product(J.T, y, x)


@cache
def components() -> tuple[Any, Any]:
    """The classes of explicit and implicit components."""
    om = optional("openmdao.api", "openmdao")
    OfInputs: Any = om.ExplicitComponent
    OfResiduals: Any = om.ImplicitComponent

    class Explicit(Component, OfInputs):
        def compute(self, inputs: Any, outputs: Any) -> None:
            self.f.write([inputs], outputs)

        def compute_partials(self, inputs: Any, partials: Any) -> None:
            self.fill(partials, self.f.J([inputs]))

        def compute_jacvec_product(self, inputs: Any, dx: Any, dy: Any, mode: str) -> None:
            self.multiply(self.f.J([inputs]), mode, (dx,), (dy,))

    class Implicit(Component, OfResiduals):
        def apply_nonlinear(self, inputs: Any, outputs: Any, residuals: Any) -> None:
            self.f.write([inputs, outputs], residuals)

        def linearize(self, inputs: Any, outputs: Any, partials: Any) -> None:
            J = self.f.J([inputs, outputs])
            if not self.matrix_free:
                self.fill(partials, J)
            self.inverse = inverse_of(asoperator(J.block(self.f.f.of, self.f.states).tosparse()))

        def apply_linear(self, x: Any, u: Any, dx: Any, du: Any, dr: Any, mode: str) -> None:
            self.multiply(self.f.J([x, u]), mode, (dx, du), (dr,))

        def solve_linear(self, du: Any, dr: Any, mode: str) -> None:
            M: Any = self.inverse
            if mode == "fwd":
                du.set_val(M @ dr.asarray())
            else:
                dr.set_val(M.T @ du.asarray())

    return Explicit, Implicit
