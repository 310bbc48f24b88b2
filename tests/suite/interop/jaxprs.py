"""What a function of JAX calls."""

import jax


def equations(jaxpr):
    """The equations of a jaxpr, and of those inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def primitives(jaxpr):
    """The names of all primitives."""
    return (equation.primitive.name for equation in equations(jaxpr))
