"""Models as components of OpenMDAO: its own checks, its drivers, beside components by hand."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

om = pytest.importorskip("openmdao.api")
pytestmark = pytest.mark.peers

FORMS = "sparse", "operator"

SELLAR = """
<ir_version: 10, opset_import: ["": 21]>
coupling (double[2] z, double[1] x, double[1] y1, double[1] y2) => (double[1] r1, double[1] r2)
<double[2] one = {1, 1}, double[2] last = {0, 1}, double[2] first = {1, 0}, double fifth = {0.2}>
{
    zz = Mul (z, z)
    z1z1 = MatMul (first, zz)
    z2 = MatMul (last, z)
    effect = Mul (fifth, y2)
    f1 = Sum (z1z1, z2, x)
    g1 = Sub (f1, effect)
    r1 = Sub (y1, g1)
    root = Sqrt (y1)
    sum = MatMul (one, z)
    g2 = Add (root, sum)
    r2 = Sub (y2, g2)
}"""
"""The two disciplines of Sellar, Batill and Renaud (1996), as residuals."""

COST = """
<ir_version: 10, opset_import: ["": 21]>
cost (double[2] z, double[1] x, double[1] y1, double[1] y2) => (double[1] f)
<double[2] last = {0, 1}>
{
    xx = Mul (x, x)
    z2 = MatMul (last, z)
    minus = Neg (y2)
    decay = Exp (minus)
    f = Sum (xx, z2, y1, decay)
}"""

START = {"z": [5.0, 2.0], "x": [1.0], "y1": [1.0], "y2": [1.0]}


def parsed(text):
    return oj.load(onnx.parser.parse_model(text))


class Coupling(om.ImplicitComponent):
    """The disciplines, by hand."""

    def setup(self):
        for name in ("z", "x"):
            self.add_input(name, START[name])
        for name in ("y1", "y2"):
            self.add_output(name, START[name])
        self.declare_partials("*", "*")

    def apply_nonlinear(self, inputs, outputs, residuals):
        (z1, z2), x, y1, y2 = inputs["z"], inputs["x"], outputs["y1"], outputs["y2"]
        residuals["y1"] = y1 - (z1**2 + z2 + x - 0.2 * y2)
        residuals["y2"] = y2 - (np.sqrt(y1) + z1 + z2)

    def linearize(self, inputs, outputs, partials):
        partials["y1", "z"] = [-2 * inputs["z"][0], -1]
        partials["y1", "x"], partials["y1", "y1"], partials["y1", "y2"] = -1, 1, 0.2
        partials["y2", "z"] = -1
        partials["y2", "x"], partials["y2", "y2"] = 0, 1
        partials["y2", "y1"] = -0.5 / np.sqrt(outputs["y1"])


class Cost(om.ExplicitComponent):
    """The objective, by hand."""

    def setup(self):
        for name, value in START.items():
            self.add_input(name, value)
        self.add_output("f", 0.0)
        self.declare_partials("*", "*")

    def compute(self, inputs, outputs):
        z, x, y1, y2 = (inputs[name] for name in START)
        outputs["f"] = x**2 + z[1] + y1 + np.exp(-y2)

    def compute_partials(self, inputs, partials):
        partials["f", "z"] = [0, 1]
        partials["f", "x"], partials["f", "y1"] = 2 * inputs["x"], 1
        partials["f", "y2"] = -np.exp(-inputs["y2"])


def optimised(coupling, cost, *, assembled=True):
    """Sellar's problem, solved: the problem of OpenMDAO, and the steps of its driver."""
    p = om.Problem(reports=False)
    p.model.add_subsystem("coupling", coupling, promotes=["*"])
    p.model.add_subsystem("cost", cost, promotes=["*"])
    coupling.nonlinear_solver = om.NewtonSolver(solve_subsystems=False, iprint=-1, rtol=1e-14)
    coupling.linear_solver = om.DirectSolver(assemble_jac=assembled)
    p.driver = om.ScipyOptimizeDriver(optimizer="SLSQP", tol=1e-10, disp=False)
    p.model.add_design_var("z", lower=[-10, 0], upper=10)
    p.model.add_design_var("x", lower=0, upper=10)
    p.model.add_objective("f")
    p.model.add_constraint("y1", lower=3.16)
    p.model.add_constraint("y2", upper=24)
    p.setup()
    for name in ("z", "x"):
        p.set_val(name, START[name])
    result = p.run_driver()
    assert result.success
    return p, result.iter_count


@pytest.mark.parametrize("form", FORMS)
def test_a_driver_ends_where_it_does_with_components_by_hand(form):
    expected, steps = optimised(Coupling(), Cost())
    coupling = oj.to_openmdao(parsed(SELLAR), START, states=["y1", "y2"], form=form)
    cost = oj.to_openmdao(parsed(COST), START, form=form)
    found, taken = optimised(coupling, cost, assembled=form == "sparse")
    for name in (*START, "f"):
        assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-8)
    assert_allclose(found["f"], 3.18339395, rtol=1e-7)  # as published
    assert taken == steps


ROD = """
<ir_version: 10, opset_import: ["": 21]>
rod (double[1, 1, 6] u, double k, double[1, 1, 6] heat) => (double[1, 1, 6] rate, double total)
<double[1, 1, 3] stencil = {1.0, -2.0, 1.0}>
{
    bent = Conv <pads = [1, 1]> (u, stencil)
    flux = Mul (k, bent)
    cubed = Mul (u, heat)
    rate = Add (flux, cubed)
    total = ReduceSum <keepdims = 0> (heat)
}"""

ROD_START = {"u": np.linspace(0.1, 1.0, 6).reshape(1, 1, 6), "k": 2.0,
             "heat": np.linspace(1.0, 2.0, 6).reshape(1, 1, 6)}  # fmt: skip


def alone(component):
    """A problem of one component, set up."""
    p = om.Problem(reports=False)
    p.model.add_subsystem("c", component, promotes=["*"])
    p.setup()
    return p


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("states", [None, "u"])
def test_partials_are_right(form, states):
    """As OpenMDAO's own differences find, at a point that is not the start."""
    of = None if states is None else "rate"
    p = alone(oj.to_openmdao(parsed(ROD), ROD_START, of=of, states=states, form=form))
    p.set_val("u", 0.3 + p["u"])
    p.set_val("k", 1.5)
    p.run_model()
    checked = p.check_partials(out_stream=None, step=1e-6)["c"]
    ends = ("u", "k", "heat")
    assert {wrt for _, wrt in checked} == {*ends}
    for errors in checked.values():
        for kind in ("forward", "reverse", "fwd_rev"):
            error = getattr(errors["abs error"], kind)
            assert error is None or error < 1e-8
    assert max(np.abs(errors["J_fwd"]).max() for errors in checked.values()) > 1


def test_declared_partials_are_the_entries_that_may_be_nonzero():
    c = oj.to_openmdao(parsed(ROD), ROD_START)
    p = alone(c)
    p.run_model()
    p.model.run_linearize()
    found = {pair: (meta["rows"], meta["cols"])
             for pair, meta in c._subjacs_info.items() if meta["rows"] is not None}  # fmt: skip
    rows, columns = found["c.rate", "c.u"]
    assert rows.dtype == columns.dtype == np.int32
    assert sorted(zip(rows, columns, strict=True)) == [
        (i, j) for i in range(6) for j in range(6) if abs(i - j) < 2
    ]
    assert len(found["c.rate", "c.heat"][0]) == 6
    assert ("c.total", "c.u") not in found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_totals_through_its_own_linear_solver(form, mode):
    """Newton's method in the group, with `solve_linear` of the component: du/da = (3u² + 1)⁻¹."""
    roots = parsed("""
    <ir_version: 10, opset_import: ["": 21]>
    roots (double[3] u, double[3] a) => (double[3] r)
    {
        uu = Mul (u, u)
        uuu = Mul (uu, u)
        f = Add (uuu, u)
        r = Sub (f, a)
    }""")
    p = alone(oj.to_openmdao(roots, {"u": np.ones(3), "a": np.ones(3)}, states="u", form=form))
    p.model.nonlinear_solver = om.NewtonSolver(solve_subsystems=False, iprint=-1, rtol=1e-14)
    p.model.linear_solver = om.LinearRunOnce()
    p.setup(mode=mode)
    p.set_val("a", [1.0, 2.0, 3.0])
    p.run_model()
    assert_allclose(p["u"] ** 3 + p["u"], [1.0, 2.0, 3.0], rtol=1e-12)
    totals = p.compute_totals("u", "a")["u", "a"]
    assert_allclose(totals, np.diag(1 / (3 * p["u"] ** 2 + 1)), rtol=1e-10, atol=1e-14)


def test_single_precision_and_names_with_dots():
    layer = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    layer (float[2] x) => (float[2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul (w, x) }""")
    (node,) = layer.graph.node
    node.input[1] = layer.graph.input[0].name = "x.a"
    node.output[0] = layer.graph.output[0].name = "y.a"
    p = alone(oj.to_openmdao(oj.load(layer), {"x.a": [1.0, 1.0]}))
    p.set_val("x:a", [2.0, 1.0])
    p.run_model()
    assert_allclose(p["y:a"], [4.0, 10.0])
    assert_allclose(p.compute_totals("y:a", "x:a")["y:a", "x:a"], [[1, 2], [3, 4]])


def test_residuals_have_the_shapes_of_their_states():
    with pytest.raises(oj.InputError, match=r"states have shapes .* in the same order"):
        oj.to_openmdao(parsed(ROD), ROD_START, of="total", states="u")
