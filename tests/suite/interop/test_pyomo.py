"""Models as grey boxes of Pyomo, as PyNumero reads them: beside the same derivatives by hand."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from solvers.programs import SOLUTION, hock_schittkowski

pyo = pytest.importorskip("pyomo.environ")
greybox = pytest.importorskip("pyomo.contrib.pynumero.interfaces.external_grey_box")
readers = pytest.importorskip("pyomo.contrib.pynumero.interfaces.pyomo_grey_box_nlp")
pytestmark = pytest.mark.peers

MODEL = oj.load(onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
products (double[3] x, double s) => (double[2] y, double c)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}>
{
    left = Slice (x, zero, two)
    right = Slice (x, one, three)
    y = Mul (left, right)
    yy = Mul (y, y)
    total = ReduceSum <keepdims = 0> (yy)
    c = Sub (total, s)
}"""))
"""y = (a b, b d), c = |y|² - s, of x = (a, b, d)."""

START = {"x": [1.0, 2.0, 3.0], "s": 4.0}


def read(form="operator", zero="c"):
    """A Pyomo model with the grey box, and PyNumero's view of it."""
    model = pyo.ConcreteModel()
    box = oj.to_pyomo(oj.as_scipy(MODEL, START, form=form), zero=zero)
    model.box = greybox.ExternalGreyBoxBlock(external_model=box)
    return model.box, readers._ExternalGreyBoxAsNLP(model.box)


def test_variables_have_the_names_and_the_numbers_of_the_tensors():
    box, _ = read()
    inputs = {name: pyo.value(x) for name, x in box.inputs.items()}
    assert inputs == {"x[0]": 1.0, "x[1]": 2.0, "x[2]": 3.0, "s": 4.0}
    assert {name: pyo.value(y) for name, y in box.outputs.items()} == {"y[0]": 2.0, "y[1]": 6.0}
    assert box.get_external_model().equality_constraint_names() == ["c"]


@pytest.mark.parametrize("form", ["operator", "sparse", "dense"])
def test_pynumero_reads_values_and_derivatives(form):
    _, nlp = read(form)
    a, b, d, s, y = 1.5, -0.5, 2.0, 3.0, np.array([0.25, 0.5])
    λ, μ = 0.7, np.array([1.1, -1.3])
    nlp.set_primals(np.array([a, b, d, s, *y]))
    nlp.set_duals(np.array([λ, *μ]))
    made = np.array([a * b, b * d])
    assert_allclose(nlp.evaluate_constraints(), [made @ made - s, *(made - y)])
    dy = np.array([[b, a, 0, 0], [0, d, b, 0]])
    dc = 2 * made @ dy - [0, 0, 0, 1]
    expected = np.block([[dc, np.zeros(2)], [dy, -np.eye(2)]])
    assert_allclose(nlp.evaluate_jacobian().toarray(), expected, atol=1e-14)
    weights = 2 * λ * made + μ
    H = np.zeros((6, 6))
    H[0, 1] = H[1, 0] = weights[0]
    H[1, 2] = H[2, 1] = weights[1]
    H[:4, :4] += 2 * λ * dy.T @ dy
    assert_allclose(nlp.evaluate_hessian_lag().toarray(), H, atol=1e-14)


def test_the_entries_are_the_same_everywhere():
    """At 0, and for multipliers 0, where all derivatives but one vanish."""
    _, nlp = read()
    found = []
    for x, v in ((np.zeros(6), np.zeros(3)), (np.arange(6.0), np.ones(3))):
        nlp.set_primals(x)
        nlp.set_duals(v)
        matrices = nlp.evaluate_jacobian(), nlp.evaluate_hessian_lag()
        found.append([(A.row.tolist(), A.col.tolist()) for A in matrices])
    assert found[0] == found[1]
    rows, columns = found[0][1]
    near = {(i, j) for i in range(3) for j in range(3) if abs(i - j) < 2}
    assert {*zip(rows, columns, strict=True)} == near


def test_everything_is_an_output_by_default():
    box = oj.to_pyomo(oj.as_scipy(MODEL, START))
    assert box.output_names() == ["y[0]", "y[1]", "c"]
    assert box.n_equality_constraints() == 0


def test_to_pyomo_rejects_wrong_arguments():
    with pytest.raises(oj.InputError, match="zero='x' is not in of: y, c"):
        oj.to_pyomo(oj.as_scipy(MODEL, START), zero="x")
    with pytest.raises(oj.InputError, match="not a Model"):
        oj.to_pyomo(MODEL)


def test_a_program_is_a_box_with_objective_and_bounds():
    """IPOPT solves the box alone, whose outputs are variables."""
    interfaces = pytest.importorskip("pyomo.contrib.pynumero.interfaces.cyipopt_interface")
    ipopt = pytest.importorskip("cyipopt")
    model = pyo.ConcreteModel()
    box = oj.to_pyomo(hock_schittkowski())
    model.box = greybox.ExternalGreyBoxBlock(external_model=box)
    assert [x.bounds for x in model.box.outputs.values()] == [(25, None), (40, 40)]
    nlp = interfaces.CyIpoptNLP(readers._ExternalGreyBoxAsNLP(model.box))
    start = nlp.x_init()
    solver = ipopt.Problem(len(start), len(nlp.g_lb()), nlp, nlp.x_lb(), nlp.x_ub(),
                           nlp.g_lb(), nlp.g_ub())  # fmt: skip
    solver.add_option("print_level", 0)
    x, info = solver.solve(start)
    assert info["status"] == 0, info["status_msg"]
    assert_allclose(x[:4], SOLUTION, atol=1e-5)


def test_constraints_with_equal_bounds_are_equations():
    p = oj.problem((MODEL, "c"), START, constraints=(MODEL, "y"), constraint_bounds=(3, 3))
    box = oj.to_pyomo(p)
    assert (box.output_names(), box.equality_constraint_names()) == ([], ["y[0]", "y[1]"])
    assert box.evaluate_equality_constraints().tolist() == [-1, 3]
    with pytest.raises(oj.InputError, match="zero='c' is no equation: its two bounds differ"):
        oj.to_pyomo(hock_schittkowski(), zero="c")
