"""Solvers over the data of all ranks take the steps of one process, each the same ones."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from data.regressions import HEAD, UNEVEN, W, X, softmax_regression
from onnxjac.jacobians.errors import InputError, OnnxJacError

from .threads import on_ranks, outcomes

OPTIONS = {"of": "loss", "wrt": "W", "shared": {"W": W}, "reduction": "mean", "maxiter": 2}
SOLVERS = {
    "newton_cg": (oj.newton_cg, {}),
    "preconditioned": (oj.newton_cg, {"preconditioner": oj.preconditioners.jacobi}),
    "natural_gradient": (oj.natural_gradient, {"at": "logits"}),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_descent_over_ranks_takes_the_steps_of_one_process(name):
    """The first rank has no batches, and starts where the others do."""
    solve, more = SOLVERS[name]
    whole = solve(softmax_regression(), UNEVEN, **OPTIONS, **more)

    def script(comm):
        own = [[], UNEVEN[::2], UNEVEN[1::2]][comm.rank]
        return solve(softmax_regression(), own, comm=comm, **OPTIONS, **more)

    first, *others = on_ranks(3, script)
    assert_allclose(first.x, whole.x, rtol=1e-8)
    assert_allclose(first.fun, whole.fun, rtol=1e-12)
    assert all(np.array_equal(first.x, other.x) for other in others)


def test_least_squares_take_residuals_of_all_ranks():
    """Residuals of all ranks, whose numbers differ; one rank has none."""
    model = oj.load(onnx.parser.parse_model(f"""{HEAD}
        g (double[N, 4] x, double[4] c) => (double[N] r) {{ h = MatMul(x, c) e = Exp(h)
            t = Constant<value_float = 2.0>() d = Cast<to = 11>(t) r = Sub(e, d) }}"""))
    start = {"c": np.array([0.1, -0.2, 0.3, 0.0])}
    whole = oj.levenberg_marquardt(model, {"x": X, **start}, of="r", wrt="c", maxiter=5)

    def script(comm):
        cuts = [[X[:15]], [X[15:16]], [X[16:]], []]
        return oj.levenberg_marquardt(model, [{"x": x} for x in cuts[comm.rank]], of="r", wrt="c",
                                      shared=start, maxiter=5, comm=comm)  # fmt: skip

    for found in on_ranks(4, script):
        assert_allclose(found.fun, whole.fun, rtol=1e-6)
        assert_allclose(found.cost, whole.cost, rtol=1e-9)
        assert_allclose(found.tensors["c"], whole.tensors["c"], rtol=1e-6)


def test_a_solver_without_any_batch_is_refused():
    def script(comm):
        oj.newton_cg(softmax_regression(), [], comm=comm, **OPTIONS)

    for error in outcomes(2, script):
        assert type(error) is InputError
        assert str(error) == "no rank has a batch"


def test_labels_out_of_range_on_one_rank_are_told_on_all():
    def script(comm):
        batch = {"x": X, "y": np.full(23, 7 * comm.rank)}
        oj.newton_cg(softmax_regression(), [batch], comm=comm, **OPTIONS)

    for error in outcomes(2, script):
        assert isinstance(error, OnnxJacError)
        assert str(error).startswith("rank 1: ")


def test_a_solver_over_ranks_needs_a_reduction():
    with pytest.raises(InputError, match="needs reduction="):
        oj.newton_cg(softmax_regression(), UNEVEN[0], comm=object(), of="loss")
