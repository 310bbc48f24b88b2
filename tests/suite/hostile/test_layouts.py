"""Arrays of any memory layout: the result is that of a plain array, and inputs stay unchanged."""

import numpy as np
import pytest

from .models import CALLS, ENGINES, network

PLAIN = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def strided():
    return np.repeat(np.repeat(PLAIN, 2, 0), 3, 1)[::2, ::3]


def unaligned():
    return np.frombuffer(b"\0" + PLAIN.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)


def read_only():
    x = PLAIN.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "Fortran order": lambda: np.asfortranarray(PLAIN),
    "strided": strided,
    "backwards": lambda: PLAIN[::-1, ::-1].copy()[::-1, ::-1],
    "unaligned": unaligned,
    "read-only": read_only,
    "big-endian": lambda: PLAIN.astype(">f4"),
    "double": lambda: PLAIN.astype(np.float64),
    "big-endian double": lambda: PLAIN.astype(">f8"),
    "list": PLAIN.tolist,
}


@pytest.fixture(scope="module")
def net():
    return network()


@pytest.fixture(scope="module")
def expected(net):
    """The results for a plain array, by call and engine."""
    return {(call, e): CALLS[call](net, PLAIN.copy(), e) for call in CALLS for e in ENGINES}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_call_at_every_layout(net, expected, layout, engine):
    for name, call in CALLS.items():
        x = LAYOUTS[layout]()
        before = x.tobytes() if isinstance(x, np.ndarray) else repr(x)
        same(call(net, x, engine), expected[name, engine], name)
        assert before == (x.tobytes() if isinstance(x, np.ndarray) else repr(x)), name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_right_hand_sides_of_every_layout(net, layout, engine):
    from onnxjac import linearize

    J = linearize(net, {"x": PLAIN}, of="y")
    J = J if engine is None else J.compile(engine)
    v = np.ravel(np.asarray(LAYOUTS[layout]()))
    before = v.tobytes()
    product, plain = J @ v, J @ PLAIN.ravel()
    assert v.tobytes() == before
    assert product.flags.writeable
    np.testing.assert_allclose(product, plain, rtol=1e-6)
    V = np.asarray(LAYOUTS[layout]()).repeat(2, 0)[:2].T  # (3, 2): too short for J
    with pytest.raises(ValueError, match="mismatch"):
        J @ V


def same(found, expected, name):
    """Equal numbers, or equal lists of them."""
    if isinstance(expected, list | tuple) and not isinstance(expected[0], str):
        for a, b in zip(found, expected, strict=True):
            same(a, b, name)
    elif isinstance(expected, list):
        assert found == expected, name
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7, err_msg=name)
