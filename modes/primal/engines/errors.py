"""What an engine says of a model that it does not run."""

from __future__ import annotations

from ....jacobians.errors import OnnxJacError


class EngineError(OnnxJacError):
    """ONNX Runtime cannot run this model, or not at this point."""


class OutdatedEngine(EngineError):
    """ONNX Runtime as it is installed here is too old for this model, or cannot be imported."""
