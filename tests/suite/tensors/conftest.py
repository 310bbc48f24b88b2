"""The libraries whose tensors the tests of this room take."""

import pytest

from ..ops.libraries import jax_of, torch_of


@pytest.fixture(params=["torch", "jax"])
def library(request):
    """PyTorch on the device of the run, or JAX in double precision; skipped where it is missing."""
    library = pytest.importorskip(request.param)
    if request.param == "torch":
        yield torch_of(request.getfixturevalue("device"))
        return
    with library.enable_x64(True):
        yield jax_of()
