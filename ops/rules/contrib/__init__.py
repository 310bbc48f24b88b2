"""ONNX Runtime's own operators (`com.microsoft`), declared as anybody declares an operator.

Each is defined in the vocabulary, so that its values, where ONNX Runtime is not installed, and all
of its derivatives follow. Nothing here is known to the rest of the package.
"""

from . import attention, fused

__all__ = ["attention", "fused"]
