"""XLA as the engine of products."""

from ...model.primal.engines.jax import compile

__all__ = ["compile"]
