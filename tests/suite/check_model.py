"""The checker of a whole model: all operations on J between named tensors at a point.

Raises AssertionError where a promise is broken. Meant for float64; off kinks, where J is smooth.
"""

import numpy as np

import onnxjac as oj


def check_model(model, inputs, *, of=None, wrt=None, engine=None, rtol=1e-9, columns=3, seed=0):
    """Check J of a model at a point; returns J."""
    J = oj.linearize(model, inputs, of=of, wrt=wrt, engine=engine)
    v, u = (draw(rng_of(seed), J.shape[k], J.dtype) for k in (1, 0))
    check_face(J, model, inputs, engine)
    check_dot(J, u, v, rtol)
    check_columns(J, columns, rtol, seed)
    check_names(J, u, v, rtol)
    check_blocks(J, v, rtol)
    outcome = J.check(seed=seed)
    assert outcome.verdict != "wrong", f"{J!r}\n{outcome}"  # entries on kinks are not compared
    return J


def rng_of(seed):
    return np.random.default_rng(seed)


def draw(rng, size, dtype):
    return rng.standard_normal(size).astype(dtype)


def check_face(J, model, inputs, engine):
    """Shape, dtype and primal match the tensors of the rows and columns."""
    sides = (J.codomain, J.domain)
    assert J.shape == tuple(sum(np.prod(spec.shape, dtype=int) for spec in side) for side in sides)
    assert J.dtype == np.result_type(*(spec.dtype for spec in (*J.codomain, *J.domain)))
    assert list(J.primal) == [spec.name for spec in J.codomain]
    for spec in J.codomain:
        assert J.primal[spec.name].shape == spec.shape
    shared = J.primal.keys() & model.outputs.keys()
    outputs = model.run(inputs, engine=engine) if shared else {}
    for name in shared:
        assert_near(J.primal[name], outputs[name], 1e3 * np.finfo(J.dtype).eps)


def check_dot(J, u, v, rtol):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    forward, reverse = J @ v, J.T @ u
    scale = np.linalg.norm(u) * np.linalg.norm(forward) + np.finfo(J.dtype).tiny
    assert abs(u @ forward - reverse @ v) <= rtol * scale


def check_columns(J, columns, rtol, seed):
    """Batched right-hand sides match single ones, for J and Jᵀ; u J is (Jᵀ u)ᵀ."""
    for K in (J, J.T):
        V = draw(rng_of(seed + 1), (K.shape[1], columns), K.dtype)
        assert_near(K @ V, np.stack([K @ column for column in V.T], axis=1), rtol)
        assert_near(V.T @ K.T, (K @ V).T, rtol)
        assert_near(K.T.T @ V, K @ V, rtol)


def check_names(J, u, v, rtol):
    """Products by name are the flat products, split into tensors."""
    for K, vector in ((J, v), (J.T, u)):
        assert_near(flat(K.apply(cut(vector, K.domain)), K.codomain), K @ vector, rtol)


def check_blocks(J, v, rtol):
    """Each named block matches J applied by name, for the first and last tensors of each side."""
    parts = cut(v, J.domain)
    for row in dict.fromkeys((J.codomain[0], J.codomain[-1])):
        for column in dict.fromkeys((J.domain[0], J.domain[-1])):
            alone = J.apply({column.name: parts[column.name]})[row.name]
            block = J[row.name, column.name]
            assert_near(block @ parts[column.name].ravel(), alone.ravel(), rtol)
            assert (block.codomain, block.domain) == ((row,), (column,))


def cut(vector, specs):
    """A flat vector as tensors by name."""
    ends = np.cumsum([np.prod(spec.shape, dtype=int) for spec in specs])
    parts = np.split(vector, ends[:-1])
    return {spec.name: part.reshape(spec.shape) for spec, part in zip(specs, parts, strict=True)}


def flat(tensors, specs):
    """Tensors by name as one vector."""
    return np.concatenate([tensors[spec.name].ravel() for spec in specs])


def assert_near(actual, expected, rtol):
    """‖actual - expected‖ ≤ rtol · ‖expected‖, and the shapes agree."""
    assert np.shape(actual) == np.shape(expected)
    assert np.linalg.norm(np.ravel(actual - expected)) <= rtol * np.linalg.norm(np.ravel(expected))


