"""Every operator can be copied, pickled, and sent by joblib and Dask, before and after its use."""

import copy
import io
import pickle

import joblib
import numpy as np
import pytest
from distributed.protocol import deserialize, serialize
from numpy.testing import assert_allclose

from interop.operators import KINDS

from ..jacobians.examples import EXAMPLES, Draw

TIGHT = {"rtol": 1e-9, "atol": 1e-12}
MADE = {name: lambda make=make: make(Draw(0))[0] for name, (_, make) in EXAMPLES.items()}


def by_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "joblib": by_joblib,
    "dask": lambda thing: deserialize(*serialize(thing)),
}


@pytest.mark.parametrize("name", [*KINDS, *MADE])
def test_operators_arrive_the_same_by_every_way(name):
    J = (KINDS | MADE)[name]()
    new = {way: send(J) for way, send in WAYS.items()}
    v, u = (np.random.default_rng(0).standard_normal(n) for n in J.shape[::-1])
    forward, backward = J @ v, J.T @ u
    used = {f"{way}, used": send(J) for way, send in WAYS.items()}
    for way, K in {**new, **used}.items():
        assert type(K) is type(J), way
        assert repr(K) == repr(J), way
        assert_allclose(K @ v, forward, err_msg=way, **TIGHT)
        assert_allclose(K.T @ u, backward, err_msg=way, **TIGHT)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_moves_to_another_point_alone(way):
    J = KINDS["linearization"]()
    K = WAYS[way](J)
    v, before = np.ones(J.shape[1]), J @ np.ones(J.shape[1])
    moved = K.relinearize({**J.point, "x": J.point["x"] + 1})
    assert np.abs(moved @ v - before).max() > 0.1
    assert_allclose(J @ v, before, **TIGHT)
