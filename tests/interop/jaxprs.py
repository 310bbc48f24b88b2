"""What a function of JAX calls."""

import jax


def primitives(jaxpr):
    """The names of all primitives in a jaxpr, and in those inside it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)
