"""ONNX Runtime's contrib operators (`com.microsoft`), declared like user-defined operators.

Each is defined in the vocabulary: its derivatives follow, and so do its values where ONNX Runtime
is not installed. The rest of the package does not refer to this one.
"""

from . import attention, experts, fused, quantized, recurrent  # noqa: F401  (register operators)
