"""Three problems, a surrogate of scikit-learn, a network of PyTorch and a discretised PDE, in every
tool: the solution is SciPy's.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import onnxjac as oj
from solvers.models import parsed

pytestmark = pytest.mark.peers

QUIET = {"print_level": 0, "sb": "yes", "tol": 1e-10}


class Case:
    """A program, and the models that it is of."""

    def __init__(self, objective, constraints, inputs, **bounds):
        self.objective, self.constraints, self.inputs = objective, constraints, inputs
        self.program = oj.problem(objective, inputs, constraints=constraints, **bounds)
        models = {id(model): model for model, _ in (objective, constraints)}
        self.models = [*models.values()]

    def point(self, model):
        return {name: self.inputs[name] for name in model.inputs}

    def outputs(self, model):
        named = (self.objective, self.constraints)
        return [name for owner, name in named if owner is model]


def surrogate():
    pytest.importorskip("skl2onnx")
    from skl2onnx import to_onnx
    from sklearn.neural_network import MLPRegressor

    x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    net = MLPRegressor(hidden_layer_sizes=8, activation="tanh", solver="lbfgs", max_iter=2000)
    net.fit(x, (x[:, 0] - 0.5) ** 2 + 2 * x[:, 1] ** 2)
    plane = parsed("""plane (double[1, 2] X) => (double[1, 1] total) <int64[1] one = {1}>
                   { total = ReduceSum (X, one) }""")
    model = oj.load(to_onnx(net, x[:1]), dtype="float64")
    return Case((model, "variable"), (plane, "total"), {"X": np.zeros((1, 2))},
                bounds=(-1, 1), constraint_bounds=(1, 1))  # fmt: skip


def network():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Plant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            layers = torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
            self.net = torch.nn.Sequential(*layers).double()

        def forward(self, u, v):
            return v - self.net(u)

    zeros = torch.zeros(3).double(), torch.zeros(2).double()
    plant = oj.load(Plant(), example_inputs=zeros)
    cost = parsed("""cost (double[3] u, double[2] v) => (double f)
        <double[2] goal = {0.4, -0.1}, double small = {0.01}>
        { e = Sub (v, goal)  ee = ReduceSumSquare <keepdims = 0> (e)
          uu = ReduceSumSquare <keepdims = 0> (u)
          price = Mul (small, uu)  f = Add (ee, price) }""")
    (name,) = plant.outputs
    return Case((cost, "f"), (plant, name), {"u": np.zeros(3), "v": np.zeros(2)})


N = 10


def equation():
    stencil = 9 * (2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1))
    model = parsed(f"""pde (double[{N}] u, double[{N}] q) => (double f, double[{N}] residual)
        <double[{N}, {N}] A = {{{", ".join(map(str, stencil.ravel()))}}},
         double one = {{1.0}}, double small = {{0.001}}>
        {{ d = MatMul (A, u)  uu = Mul (u, u)  cube = Mul (uu, u)  left = Add (d, cube)
           residual = Sub (left, q)  off = Sub (u, one)
           misfit = ReduceSumSquare <keepdims = 0> (off)
           effort = ReduceSumSquare <keepdims = 0> (q)
           price = Mul (small, effort)  f = Add (misfit, price) }}""")
    return Case((model, "f"), (model, "residual"), {"u": np.zeros(N), "q": np.zeros(N)})


@cache
def solved(case):
    """The case, and SciPy's solution."""
    made = case()
    options = {"gtol": 1e-10, "xtol": 1e-12}
    return made, minimize(**made.program.to_scipy(), method="trust-constr", options=options).x


def by_ipopt(name, case):
    p, solver = case.program, pytest.importorskip(name).Problem(**case.program.to_cyipopt())
    for key, value in QUIET.items():
        solver.add_option(key, value)
    return solver.solve(p.x0)[0]


def by_cyipopt(case, _):
    return by_ipopt("cyipopt", case)


def by_pounce(case, _):
    return by_ipopt("pounce", case)


def by_pynumero(case, _):
    module = pytest.importorskip("pyomo.contrib.pynumero.algorithms.solvers.cyipopt_solver")
    pytest.importorskip("cyipopt")
    return module.CyIpoptSolver(case.program.to_pynumero(), QUIET).solve()[0]


def by_pyomo(case, _):
    pyo = pytest.importorskip("pyomo.environ")
    boxes = pytest.importorskip("pyomo.contrib.pynumero.interfaces.external_grey_box")
    readers = pytest.importorskip("pyomo.contrib.pynumero.interfaces.pyomo_grey_box_nlp")
    interfaces = pytest.importorskip("pyomo.contrib.pynumero.interfaces.cyipopt_interface")
    ipopt = pytest.importorskip("cyipopt")
    model = pyo.ConcreteModel()
    model.box = boxes.ExternalGreyBoxBlock(external_model=oj.to_pyomo(case.program))
    nlp = interfaces.CyIpoptNLP(readers._ExternalGreyBoxAsNLP(model.box))
    start = nlp.x_init()
    solver = ipopt.Problem(len(start), len(nlp.g_lb()), nlp, nlp.x_lb(), nlp.x_ub(),
                           nlp.g_lb(), nlp.g_ub())  # fmt: skip
    for key, value in QUIET.items():
        solver.add_option(key, value)
    return solver.solve(start)[0][: case.program.n]


def by_casadi(case, _):
    ca = pytest.importorskip("casadi")
    nlp, start = case.program.to_casadi()
    return ca.nlpsol("s", "ipopt", nlp, {"print_time": False, "ipopt": QUIET})(**start)["x"].full()


def by_casadi_files(case, folder):
    ca, runtime = pytest.importorskip("casadi"), pytest.importorskip("onnxruntime")
    if not hasattr(ca, "GraphBuilder"):
        pytest.skip("CasADi before 3.8 reads no ONNX")
    (library,) = Path(runtime.__file__).parent.glob("capi/libonnxruntime.so.*")
    p, x = case.program, ca.MX.sym("x", case.program.n)
    ends = np.cumsum([0, *(a.size for a in p.start.values())]).tolist()
    parts = dict(zip(p.start, ca.vertsplit(x, ends), strict=True))
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASADI_ONNXRUNTIME_LIB", str(library))
        for k, model in enumerate(case.models):
            path = folder / f"m{k}.onnx"
            oj.export_casadi(model, path, case.point(model), of=case.outputs(model))
            f = ca.GraphBuilder(str(path)).create(f"m{k}")
            given = [ca.reshape(parts[name], *f.size_in(name)) for name in f.name_in()]
            outs = f(*given)
            outs = outs if isinstance(outs, list | tuple) else [outs]
            found |= dict(zip(case.outputs(model), outs, strict=True))
    nlp = {"x": x, "f": found[case.objective[1]], "g": ca.vec(found[case.constraints[1]])}
    _, start = p.to_casadi()
    return ca.nlpsol("s", "ipopt", nlp, {"print_time": False, "ipopt": QUIET})(**start)["x"].full()


def by_nlopt(case, _):
    pytest.importorskip("nlopt")
    solver = case.program.to_nlopt("LD_SLSQP")
    solver.set_xtol_rel(1e-10)
    return solver.optimize(case.program.x0)


def by_openmdao(case, _):
    om = pytest.importorskip("openmdao.api")
    p, program = om.Problem(reports=False), case.program
    for k, model in enumerate(case.models):
        part = oj.to_openmdao(model, case.point(model), of=case.outputs(model))
        p.model.add_subsystem(f"m{k}", part, promotes=["*"])
    ends = np.cumsum([a.size for a in program.start.values()])[:-1]
    lower, upper = (np.split(b, ends) for b in program.bounds)
    for name, low, high in zip(program.start, lower, upper, strict=True):
        p.model.add_design_var(name, lower=low, upper=high)
    p.model.add_objective(case.objective[1])
    p.model.add_constraint(case.constraints[1], equals=program.constraint_bounds[0][0])
    p.driver = om.ScipyOptimizeDriver(optimizer="SLSQP", tol=1e-12, maxiter=300, disp=False)
    p.setup()
    p.run_driver()
    return program.flatten({name: p[name] for name in program.start})


def by_pytensor(case, _):
    """SciPy's SLSQP, with the gradient and the rows of the Jacobian by PyTensor."""
    pytensor = pytest.importorskip("pytensor")
    pt, p = pytensor.tensor, case.program
    x = [pt.tensor(name, shape=a.shape, dtype="float64") for name, a in p.start.items()]
    known = dict(zip(p.start, x, strict=True))

    def function(owner, name):
        return oj.to_pytensor(owner, of=name)(*(known[key] for key in owner.inputs))

    u = pt.dvector("u")
    f, c = function(*case.objective).sum(), function(*case.constraints).flatten()
    with pytensor.config.change_flags(linker="py"):
        options = {"on_unused_input": "ignore"}
        value = pytensor.function(x, f, **options)
        slope = pytensor.function(x, pytensor.grad(f, x, disconnected_inputs="ignore"), **options)
        rest = pytensor.function(x, c, **options)
        row = pytensor.function(
            [*x, u], pytensor.grad((c * u).sum(), x, disconnected_inputs="ignore"), **options
        )

    def at(z):
        return p.unflatten(z).values()

    def flat(parts):
        return np.concatenate([np.ravel(part) for part in parts])

    aim = p.constraint_bounds[0]
    equal = {"type": "eq", "fun": lambda z: rest(*at(z)) - aim,
             "jac": lambda z: np.array([flat(row(*at(z), e)) for e in np.eye(p.m)])}  # fmt: skip
    bounds = [*zip(*p.bounds, strict=True)]
    return minimize(lambda z: float(value(*at(z))), p.x0, jac=lambda z: flat(slope(*at(z))),
                    method="slsqp", bounds=bounds, constraints=equal,
                    options={"ftol": 1e-14, "maxiter": 300}).x  # fmt: skip


CASES = {"scikit-learn": surrogate, "PyTorch": network, "PDE": equation}
SOLVERS = [by_cyipopt, by_pounce, by_pynumero, by_pyomo, by_casadi, by_casadi_files, by_nlopt,
           by_openmdao, by_pytensor]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("solve", SOLVERS)
def test_every_tool_finds_the_solution_of_scipy(solve, case, tmp_path):
    made, best = solved(CASES[case])
    assert_allclose(np.ravel(solve(made, tmp_path)), best, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["sparse", "operator"])
def test_sundials_follows_the_slopes_as_scipy_does(form, case):
    """u̇ = ∇f(u), the gradient as a model."""
    cvode = pytest.importorskip("sksundae.cvode")
    made, _ = solved(CASES[case])
    model, name = made.objective
    point = made.point(model)
    wrt = next(iter(point))
    slope = oj.export(model, "grad", point, of=name, wrt=wrt)
    problem = oj.as_scipy(slope, point, of=f"{wrt}_grad", wrt=wrt, form=form)
    accurate = {"rtol": 1e-8, "atol": 1e-10}
    found = cvode.CVODE(**oj.to_sundials(problem), **accurate).solve([0, 0.3], problem.x0)
    expected = solve_ivp(problem.ode, (0, 0.3), problem.x0, **accurate)
    assert_allclose(found.y[-1], expected.y[:, -1], atol=1e-6)
