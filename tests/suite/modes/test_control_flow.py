"""If, Loop and Scan: branches, captured tensors, nesting, zero trips, early exit, exports."""

import numpy as np
import onnx
import pytest

import onnxjac as oj
from onnxjac.modes.linear.derivatives import derivative, route

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

CACHED_UNROLLINGS = f"""{HEAD}
branches (float[3] x, bool go) => (float[3] y)
<float[3] w = {{1.0, 2.0, 3.0}}>
{{ h = Mul(x, w)
  y = If (go) <
    then_branch = then () => (float[3] a) {{ a = Mul(h, h) }},
    else_branch = other () => (float[3] b) {{ b = Sin(h) }}
  > }}
"""

POWERS = f"""{HEAD}
powers (float[2] x, int64 count, float limit) => (float[2] last, float[n, 2] all)
<bool yes = {{1}}>
{{ last, all = Loop (count, yes, x) <
    body = turn (int64 i, bool before, float[2] state) => (bool after, float[2] fresh, float[2] row)
    {{ fresh = Mul(state, x)
      most = ReduceMax <keepdims = 0> (fresh)
      after = Less(most, limit)
      row = Identity(fresh) }}
  > }}
"""

NESTED = f"""{HEAD}
nested (float[2] x) => (float[2] y)
<bool yes = {{1}}, int64 two = {{2}}, int64 three = {{3}}>
{{ y = Loop (two, yes, x) <
    body = outer (int64 i, bool a, float[2] s) => (bool b, float[2] t)
    {{ b = Identity(a)
      t = Loop (three, yes, s) <
        body = inner (int64 j, bool c, float[2] u) => (bool d, float[2] v)
        {{ d = Identity(c)  p = Mul(u, x)  v = Tanh(p) }}
      > }}
  > }}
"""


def model(text):
    return oj.load(onnx.parser.parse_model(text), dtype="float64")


@pytest.mark.parametrize("go", [True, False])
def test_a_branch_with_captured_tensors(go):
    x, w = np.array([0.3, -0.5, 0.7]), np.array([1.0, 2.0, 3.0])
    J = oj.linearize(model(CACHED_UNROLLINGS), {"x": x, "go": np.array(go)}, wrt=["x", "w", "h"])
    slope = 2 * w * x if go else np.cos(w * x)
    np.testing.assert_allclose(J["y", "h"].toarray(), np.diag(slope))
    np.testing.assert_allclose(J["y", "x"].toarray(), np.diag(slope * w))
    np.testing.assert_allclose(J["y", "w"].toarray(), np.diag(slope * x))


def powers_at(x, count, limit=1e9):
    point = {"x": x, "count": np.array(count), "limit": np.array(limit)}
    return oj.linearize(model(POWERS), point, wrt="x")


@pytest.mark.parametrize("count", [1, 3])
def test_carried_and_scanned_values(count):
    x = np.array([1.2, 0.7])
    J = powers_at(x, count)
    np.testing.assert_allclose(J["last", "x"].toarray(), np.diag((count + 1) * x**count))
    rows = np.concatenate([np.diag((k + 2) * x ** (k + 1)) for k in range(count)])
    np.testing.assert_allclose(J["all", "x"].toarray(), rows)
    assert J.check()


@pytest.mark.filterwarnings("ignore:.all. does not depend")
def test_a_loop_of_no_turns_is_the_identity():
    J = powers_at(np.array([1.2, 0.7]), 0)
    np.testing.assert_array_equal(J["last", "x"].toarray(), np.eye(2))
    assert J["all", "x"].shape == (0, 2)


def test_a_loop_that_exits_early_is_differentiated_as_far_as_it_ran():
    x = np.array([2.0, 0.5])
    J = powers_at(x, 10, limit=10.0)  # 4, 8, 16: three iterations
    np.testing.assert_allclose(J["last", "x"].toarray(), np.diag(4 * x**3))
    assert J.primal["all"].shape == (3, 2)


def test_a_loop_in_a_loop_to_second_order():
    nested, x = model(NESTED), np.array([0.9, -1.1])
    assert oj.linearize(nested, {"x": x}).check()
    weights = np.array([1.0, 2.0])
    H = oj.hessian(nested, {"x": x}, weights=weights)

    def slope(step):
        return oj.linearize(nested, {"x": x + step}).T @ weights

    v = np.array([0.3, 0.4])
    np.testing.assert_allclose(H @ v, (slope(1e-5 * v) - slope(-1e-5 * v)) / 2e-5, rtol=1e-6)


def test_an_exported_loop_stays_a_loop():
    runtime = pytest.importorskip("onnxruntime")
    x = np.array([0.9, -1.1], np.float32)
    single = oj.load(onnx.parser.parse_model(NESTED))
    proto = oj.export(single, "jvp", {"x": x})
    kinds = [node.op_type for node in proto.graph.node]
    assert kinds == ["Loop", "Reshape", "Scan"]  # the state before each turn, with an axis
    session = runtime.InferenceSession(proto.SerializeToString())
    _, found = session.run(None, {"x": x, "x_tangent": x})
    np.testing.assert_allclose(found, oj.linearize(single, {"x": x}) @ x, rtol=1e-5)


def test_a_state_has_rows_once():
    """Those before the turns are the first state, and those after all turns but the last."""
    single = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    rnn (float[2] x, float[2,2] w) => (float[2] y) <bool yes = {1}, int64 n = {5}>
    { y = Loop (n, yes, x) <body = b (int64 i, bool a, float[2] s) => (bool c, float[2] t)
      { c = Identity(a)  p = MatMul(s, w)  t = Sqrt(p) }> }"""))
    point = {"x": np.array([0.9, 1.1], np.float32), "w": np.float32([[1, 2], [3, 0.5]])}
    proto = oj.export(single, "vjp", point, wrt=("x", "w"))
    (loop,) = (node for node in proto.graph.node if node.op_type == "Loop")
    assert len(loop.output) == 2
    u = np.array([1, 2], np.float32)
    found = oj.load(proto).run({**point, "y_cotangent": u})
    wanted = oj.linearize(oj.load(single.ir), point).T.apply({"y": u})
    for name in point:
        np.testing.assert_allclose(found[f"{name}_cotangent"], wanted[name], rtol=1e-5)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_a_turn_number_that_is_declared_as_a_vector(engine):
    """Exporters before opset 11 declare it as a vector; a gathered entry keeps its axis."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    old (double[3] x) => (double[3, 1] y) <int64 n = {3}, bool yes = {1}, double one = {1}> {
      s, y = Loop(n, yes, one) <body = b (int64[1] i, bool d, double h)
        => (bool g, double k, double[1] row) {
        g = Identity(d)  k = Identity(h)  e = Gather(x, i)  row = Mul(e, e) }> }"""
    model = oj.load(onnx.parser.parse_model(text))
    x = np.array([2.0, 3, 5])
    J = oj.linearize(model, {"x": x}, engine=engine)
    assert J.primal["y"].shape == (3, 1)
    np.testing.assert_array_equal(J.toarray(), np.diag(2 * x))
    proto = oj.export(model, "vjp", {"x": x})
    found = oj.load(proto).run({"x": x, "y_cotangent": np.ones((3, 1))}, engine=engine)
    np.testing.assert_array_equal(found["y"].shape, (3, 1))
    np.testing.assert_array_equal(found["x_cotangent"], 2 * x)


DOUBLE = '<ir_version: 10, opset_import: ["" : 21]>'

STAYS = {
    "a loop that data end": (f"""{DOUBLE}
        m (double[3] x, double[3,3] W, int64 n, double top) => (double[3] y, double[k,3] rows)
        <bool yes={{1}}> {{ y, rows = Loop(n, yes, x) <body = t(int64 i, bool a, double[3] h)
          => (bool c, double[3] k, double[3] r) {{ f=Cast<to=11>(i) p=MatMul(W,h) q=Mul(p,x)
          s=Add(q,f) k=Tanh(s) m=ReduceMax<keepdims=0>(k) c=Less(m,top) r=Mul(k,x) }}> }}""",
        lambda x, W, n, top: while_loop(x, W, int(n), top),
        [{"n": 3, "top": 2.0}, {"n": 6, "top": 2.0}, {"n": 0, "top": 2.0}, {"n": 9, "top": 0.9}]),
    "a scan along other axes, backwards": (f"""{DOUBLE}
        m (double[2] c, double[3,n] xs, double[3] w) => (double[2] f, double[3,n] ys)
        {{ f, ys = Scan <num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
            scan_output_axes=[-1], scan_output_directions=[1],
            body = b (double[2] s, double[3] x) => (double[2] t, double[3] y)
          {{ p=Mul(x,w) r=ReduceSum<keepdims=0>(p) u=Mul(s,r) t=Sin(u)
             q=ReduceSum<keepdims=0>(s) y=Mul(x,q) }}>(c, xs) }}""",
        lambda c, xs, w: backward_scan(c, xs, w), [{"xs": (3, 4)}, {"xs": (3, 4)}]),
    "loops in a loop": (f"""{DOUBLE}
        m (double[2] x, int64 n) => (double[2] y) <bool yes={{1}}, double one={{1}}>
        {{ y = Loop(n, yes, x) <body = outer (int64 i, bool a, double[2] s) => (bool b, double[2] t)
          {{ b=Identity(a) f=Cast<to=11>(i) g=Add(f,one)
            t = Loop(i, yes, s) <body = inner (int64 j, bool c, double[2] u)
              => (bool d, double[2] v) {{ d=Identity(c) p=Mul(u,x) q=Div(p,g) v=Tanh(q) }}> }}>
        }}""",
        lambda x, n: nested_loops(x, int(n)), [{"n": 3}, {"n": 4}, {"n": 1}, {"n": 0}]),
    "branches of two shapes": (f"""{DOUBLE}
        m (double[3] x, bool c) => (double[k] y)
        {{ y = If(c) <then_branch = t() => (double[3] a) {{ a=Sin(x) }},
                      else_branch = e() => (double[1] b) {{ b0=Mul(x,x) b=ReduceSum(b0) }}> }}""",
        lambda x, c: (torch.sin(x) if c else (x * x).sum()[None],), [{"c": True}, {"c": False}]),
    "a branch": (f"""{DOUBLE}
        m (double[3] x, double[3] w) => (double[3] y) <double zero={{0}}>
        {{ s=ReduceSum<keepdims=0>(x) go=Greater(s,zero) h=Mul(x,w)
           y=If(go)<then_branch=t()=>(double[3] a){{a0=Mul(h,x) a=Sin(a0)}},
                    else_branch=e()=>(double[3] b){{b0=Mul(w,w) b=Mul(b0,h)}}> }}""",
        lambda x, w: (sin(h * x) if x.sum() > 0 else w * w * h for h in [x * w]),
        [{"x": 1}, {"x": -1}]),
    "branches in a loop": (f"""{DOUBLE}
        m (double[3] x, int64 n) => (double[3] y) <double[3] w={{0.4,0.5,0.6}}, double zero={{0}},
          bool yes={{1}}> {{ y = Loop(n, yes, x) <body = t(int64 i, bool a, double[3] h)
          => (bool c, double[3] k) {{ c=Identity(a) s=ReduceSum<keepdims=0>(h) go=Greater(s,zero)
            k=If(go)<then_branch=t()=>(double[3] p){{p0=Mul(h,w) p1=Sin(p0) p=Sub(p1,x)}},
                     else_branch=e()=>(double[3] b){{b0=Tanh(h) b=Add(b0,x)}}> }}> }}""",
        lambda x, n: branching_loop(x, int(n)), [{"n": 4, "x": 1}, {"n": 5, "x": -1}, {"n": 0}]),
}  # fmt: skip
"""name -> (model, the same in torch, the non-random inputs of some points)."""


def sin(x):
    return torch.sin(x)


def while_loop(x, W, n, top):
    h, rows = x, []
    for i in range(n):
        h = torch.tanh((W @ h) * x + i)
        rows.append(h * x)
        if not h.max() < top:
            break
    return h, torch.stack(rows) if rows else torch.zeros((0, 3), dtype=x.dtype)


def backward_scan(c, xs, w):
    ys = [None] * xs.shape[1]
    for k in reversed(range(xs.shape[1])):
        ys[k] = xs[:, k] * c.sum()
        c = torch.sin(c * (xs[:, k] * w).sum())
    return c, torch.stack(ys, 1)


def nested_loops(x, n):
    y = x
    for i in range(n):
        for _ in range(i):
            y = torch.tanh(y * x / (i + 1))
    return (y,)


def branching_loop(x, n):
    y = x
    for _ in range(n):
        w = torch.tensor([0.4, 0.5, 0.6], dtype=x.dtype)
        y = torch.sin(y * w) - x if y.sum() > 0 else torch.tanh(y) + x
    return (y,)


torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers


def points_of(model, said):
    """Random points, where an input may have a given value, shape or sign."""
    for k, given in enumerate(said):
        rng = np.random.default_rng(k)
        point = {}
        for name, spec in model.inputs.items():
            shape = given[name] if isinstance(given.get(name), tuple) else spec.shape
            if shape == ():
                point[name] = np.asarray(given[name], spec.dtype)
            else:
                x = rng.uniform(0.2, 1.2, shape) * rng.choice([-1, 1], shape)
                point[name] = np.abs(x) * given[name] if given.get(name) in (1, -1) else x
        yield point


def by_torch(function, point, wrt, of):
    """The function of the `wrt` tensors in torch, and these tensors."""
    fixed = {n: torch.tensor(x) for n, x in point.items()}

    def f(*given):
        return tuple(function(**{**fixed, **dict(zip(wrt, given, strict=True))}))

    return f, tuple(fixed[n] for n in wrt)


def run(proto, point, engine):
    model = oj.load(proto)
    given = {n: x for n, x in point.items() if n in model.inputs}
    return model.run(given, engine=engine)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("case", STAYS)
@pytest.mark.filterwarnings("error::onnxjac.OnnxJacWarning")
def test_exports_keep_control_flow_and_hold_for_other_branches_and_turns(case, mode, engine):
    text, function, said = STAYS[case]
    model = oj.load(onnx.parser.parse_model(text))
    points = list(points_of(model, said))
    first = points[0]
    of, wrt = list(model.outputs), [n for n, x in first.items() if x.ndim]
    proto = oj.export(model, mode, first, of=of, wrt=wrt)
    assert {"If", "Scan"} & {node.op_type for node in proto.graph.node}
    for point in points:
        f, at = by_torch(function, point, wrt, of)
        rng = np.random.default_rng(9)
        values = f(*at)
        if mode == "jvp":
            seeds = [rng.standard_normal(x.shape) for x in at]
            _, wanted = torch.autograd.functional.jvp(f, at, tuple(map(torch.tensor, seeds)))
            given, asked, suffix = wrt, of, "tangent"
        else:
            seeds = [rng.standard_normal(y.shape) for y in values]
            _, wanted = torch.autograd.functional.vjp(f, at, tuple(map(torch.tensor, seeds)))
            given, asked, suffix = of, wrt, "cotangent"
        named = {f"{n}_{suffix}": x for n, x in zip(given, seeds, strict=True)}
        found = run(proto, {**point, **named}, engine)
        for name, value in zip(of, values, strict=True):
            np.testing.assert_allclose(found[name], value.numpy(), atol=1e-13)
        for name, value in zip(asked, wanted, strict=True):
            np.testing.assert_allclose(found[f"{name}_{suffix}"], value.numpy(), atol=1e-12)


SPREADS = {
    "a state that grows": ("""(double[2] x) => (double[k] y) <bool yes={1}, int64 n={2}>
        { y = Loop(n, yes, x) <body = t(int64 i, bool a, double[m] h) => (bool c, double[q] k)
          { c=Identity(a) s=Sin(h) k=Concat<axis=0>(h,s) }> }""", "the shape of its state"),
    "a size that turns change": ("""(double[4] x) => (double y) <bool yes={1}, int64 n={3},
          double z={0}, int64[1] o={0}, int64[1] one={1}>
        { y = Loop(n, yes, z) <body = t(int64 i, bool a, double h) => (bool c, double k)
          { c=Identity(a) j=Add(i,one) s=Slice(x,o,j) q=Sin(s) r=ReduceSum<keepdims=0>(q)
            k=Add(h,r) }> }""", "another turn may change"),
    "a decision by a size that turns change": ("""(double[3] x) => (double[3] y)
          <bool yes={1}, int64 n={2}, double z={0}>
        { y = Loop(n, yes, x) <body = t(int64 i, bool a, double[3] h) => (bool c, double[3] k)
          { c=Identity(a) m=Greater(h,z) j=NonZero(m) t=Transpose(j) g=GatherND(h,t) q=Squeeze(g)
            p=Mul(q,q) r=ReduceSum<keepdims=0>(p) k=Mul(h,r) }> }""", "another turn may change"),
    "a sequence": ("""(double[2] x) => (double[k] y) <bool yes={1}, int64 n={2}>
        { e=SequenceConstruct(x) z = Loop(n, yes, e) <body = t(int64 i, bool a, seq(double[2]) h)
          => (bool c, seq(double[2]) k) { c=Identity(a) s=Sin(x) k=SequenceInsert(h,s) }>
          y=ConcatFromSequence<axis=0>(z) }""", "sequence"),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("case", SPREADS)
def test_export_warns_where_it_unrolls(case, mode):
    text, why = SPREADS[case]
    model = oj.load(onnx.parser.parse_model(f"{DOUBLE} m {text}"))
    point = {"x": np.linspace(0.3, 1.4, model.inputs["x"].shape[0])}
    with pytest.warns(oj.OnnxJacWarning, match=f"is unrolled for the point.*{why}"):
        proto = oj.export(model, mode, point, wrt="x")
    assert not {"Loop", "If", "Scan"} & {node.op_type for node in proto.graph.node}
    J = oj.linearize(model, point, wrt="x")
    v = np.random.default_rng(0).standard_normal(J.shape[mode == "jvp"])
    shape = (point["x"] if mode == "jvp" else J.primal["y"]).shape
    seed = {"x_tangent" if mode == "jvp" else "y_cotangent": v.reshape(shape)}
    found = run(proto, {**point, **seed}, "numpy")
    wanted = J @ v if mode == "jvp" else J.T @ v
    made = found["y_tangent" if mode == "jvp" else "x_cotangent"]
    np.testing.assert_allclose(made.ravel(), wanted, atol=1e-14)


def test_random_numbers_are_drawn_once():
    text = """(double[3] x) => (double[3] y) <bool yes={1}, int64 n={2}>
        { y = Loop(n, yes, x) <body = t(int64 i, bool a, double[3] h) => (bool c, double[3] k)
          { c=Identity(a) r=RandomUniformLike<seed=1.0>(h) k=Mul(h,r) }> }"""
    model = oj.load(onnx.parser.parse_model(f"{DOUBLE} m {text}"))
    with pytest.warns(oj.OnnxJacWarning, match="draws anew in every turn"):
        proto = oj.export(model, "jvp", {"x": np.ones(3)})
    x = np.array([1.0, 2, 3])
    found = run(proto, {"x": x, "x_tangent": x}, "numpy")
    np.testing.assert_allclose(found["y"], found["y_tangent"])


LONG = {
    "a loop that data end": [{"n": 60, "top": 2.0}, {"n": 200, "top": 0.9}, {"n": 4, "top": 2.0}],
    "a scan along other axes, backwards": [{"xs": (3, 70)}, {"xs": (3, 5)}],
    "loops in a loop": [{"n": 12}, {"n": 3}],
    "branches in a loop": [{"n": 60, "x": -1}, {"n": 51, "x": 1}],
}  # fmt: skip


@pytest.mark.parametrize("case", LONG)
def test_a_long_loop_is_one_operator(case):
    text, function, _ = STAYS[case]
    model = oj.load(onnx.parser.parse_model(text))
    for k, point in enumerate(points_of(model, LONG[case])):
        of, wrt = list(model.outputs), [n for n, x in point.items() if x.ndim]
        J = oj.linearize(model, point, of=of, wrt=wrt)
        f, at = by_torch(function, point, wrt, of)
        wanted = np.block([
            [b.numpy().reshape(y.numel(), -1) for b in row]
            for y, row in zip(f(*at), torch.autograd.functional.jacobian(f, at), strict=True)
        ])  # fmt: skip
        if k == 0 or case == "branches in a loop":
            assert "turns" in str(J.explain())
            assert len(J.dag.edges) <= 2 * len(of) * len(wrt)
        assert J.check()
        np.testing.assert_allclose(J.toarray(), wanted, atol=1e-12)
        for engine in ("numpy", "onnxruntime"):
            compiled = J.compile(engine)
            np.testing.assert_allclose(compiled @ np.eye(J.shape[1]), wanted, atol=1e-12)
            np.testing.assert_allclose(compiled.T @ np.ones(len(wanted)), wanted.sum(0), atol=1e-12)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.filterwarnings("error:.*is fixed:onnxjac.OnnxJacWarning")
def test_batch_branches_and_turns_stay_free_together(mode, engine):
    text = """(double[N,3] x, double[3,3] W, int64 n) => (double[N,3] y, double[k,N,3] rows)
        <bool yes={1}, double zero={0}> { y, rows = Loop(n, yes, x) <body = t(int64 i, bool a,
          double[N,3] h) => (bool c, double[N,3] k, double[N,3] r) { c=Identity(a) p=MatMul(h,W)
          s=ReduceSum<keepdims=0>(p) go=Greater(s,zero)
          k=If(go)<then_branch=u()=>(double[N,3] g){g=Tanh(p)},
                   else_branch=v()=>(double[N,3] e){e1=Mul(p,x) e=Sin(e1)}> r=Mul(k,x) }> }"""
    model = oj.load(onnx.parser.parse_model(f"{DOUBLE} m {text}"))
    rng, proto = np.random.default_rng(0), None
    for batch, n in ((2, 3), (5, 4), (1, 1), (7, 2)):
        point = {"x": rng.standard_normal((batch, 3)), "W": rng.standard_normal((3, 3))}
        point["n"] = np.array(n)
        proto = proto or oj.export(model, mode, point, wrt=["x", "W"])
        J = oj.linearize(model, point, wrt=["x", "W"])
        given, asked = (J.domain, J.codomain) if mode == "jvp" else (J.codomain, J.domain)
        J = J if mode == "jvp" else J.T
        suffix = "tangent" if mode == "jvp" else "cotangent"
        seeds = {f"{s.name}_{suffix}": rng.standard_normal(s.shape) for s in given}
        found = run(proto, {**point, **seeds}, engine)
        made = np.concatenate([found[f"{s.name}_{suffix}"].ravel() for s in asked])
        wanted = J @ np.concatenate([x.ravel() for x in seeds.values()])
        np.testing.assert_allclose(made, wanted, atol=1e-12)


SECOND = [case for case in STAYS if case != "branches in a loop"]


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("case", SECOND)
def test_second_derivatives_keep_control_flow(case, engine):
    """H v at other branches and trip counts, against torch."""
    text, function, said = STAYS[case]
    proto = onnx.parser.parse_model(text)
    total = [onnx.helper.make_node("Sin", [proto.graph.output[0].name], ["sine"]),
             onnx.helper.make_node("ReduceSum", ["sine"], ["total"], keepdims=0)]  # fmt: skip
    proto.graph.node.extend(total)
    del proto.graph.output[:]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("total", 11, []))
    model = oj.load(proto)
    points = list(points_of(model, said))
    wrt = [n for n, x in points[0].items() if x.ndim]
    made = oj.export(model, "hvp", points[0], of="total", wrt=wrt)
    assert {"If", "Scan"} & {node.op_type for node in made.graph.node}
    for point in points:
        f, at = by_torch(function, point, wrt, ["total"])
        v = [np.random.default_rng(5).standard_normal(x.shape) for x in at]
        _, wanted = torch.autograd.functional.hvp(
            lambda *given, f=f: torch.sin(f(*given)[0]).sum(), at, tuple(map(torch.tensor, v))
        )
        named = {f"{n}_tangent": x for n, x in zip(wrt, v, strict=True)}
        found = run(made, {**point, **named}, engine)
        for name, right in zip(wrt, wanted, strict=True):
            np.testing.assert_allclose(found[f"{name}_hvp"], right.numpy(), atol=1e-10)


def test_samples_that_meet_in_the_other_branch_are_not_separate():
    text = """(double[N,2] x) => (double[N,2] y) <double zero={0}> {
        s=ReduceSum<keepdims=0>(x) go=Greater(s,zero)
        y=If(go)<then_branch=t()=>(double[N,2] a){a=Sin(x)},
                 else_branch=e()=>(double[N,2] b){b=Mul(x,s)}> }"""
    model = oj.load(onnx.parser.parse_model(f"{DOUBLE} m {text}"))
    x = np.array([[0.3, 0.5], [0.2, 0.7]])
    proto = oj.export(model, "jacobian", {"x": x})
    for point in ({"x": x}, {"x": -x}, {"x": np.array([[0.1, 0.2], [-0.3, 0.5], [-0.4, -0.6]])}):
        found = run(proto, point, "numpy")["y_x_jacobian"]
        wanted = oj.linearize(model, point).toarray()
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-14)


def test_a_dense_jacobian_of_rows_has_as_many_as_there_are_turns():
    model = oj.load(onnx.parser.parse_model(STAYS["a loop that data end"][0]))
    point = next(points_of(model, [{"n": 3, "top": 2.0}]))
    proto = oj.export(model, "jacobian", point, of="rows", wrt="x")
    for n in (3, 5):
        point["n"] = np.array(n)
        J = oj.linearize(model, point, of="rows", wrt="x").toarray()
        found = run(proto, point, "numpy")["rows_x_jacobian"]
        np.testing.assert_allclose(found.reshape(J.shape), J, atol=1e-13)


DECIDED = {
    "if": """f (double[3] x, int64 n) => (double[3] y) <double zero = {0.0}> {
        s = ReduceSum<keepdims=0>(x)
        c = Greater(s, zero)
        y = If(c) <
            then_branch = up () => (double[3] a) { a = Exp(x) },
            else_branch = down () => (double[3] b) { b = Mul(x, x) }
        > }""",
    "while": """f (double[3] x, int64 n) => (double[3] y) <bool go = {1}, double least = {0.5}> {
        y = Loop(n, go, x) <
            body = turn (int64 i, bool on, double[3] s) => (bool off, double[3] t) {
                t = Sin(s)
                size = ReduceSumSquare<keepdims=0>(t)
                off = Greater(size, least)
            }
        > }""",
}


@pytest.mark.parametrize("case", DECIDED)
def test_control_flow_is_unrolled_once_for_each_way_through_it(case, monkeypatch):
    from onnxjac.modes.linear.derivatives import route

    made, make = [], route.unrolled
    monkeypatch.setattr(route, "unrolled", lambda m, *a: made.append(m) or make(m, *a))
    moving, rng = model(HEAD + DECIDED[case]), np.random.default_rng(3)
    points = [{"x": s * rng.uniform(0.2, 1.5, 3), "n": np.array(n)}
              for s, n in ((1, 6), (-1, 6), (1, 2), (-1, 2))]  # fmt: skip
    J, counts = oj.linearize(moving, points[0], wrt="x"), []
    for point in points * 3:
        J = J.relinearize(point)
        fresh = oj.linearize(model(HEAD + DECIDED[case]), point, wrt="x")
        np.testing.assert_allclose(J @ np.eye(3), fresh @ np.eye(3), rtol=1e-12)
        np.testing.assert_array_equal(J.primal["y"], fresh.primal["y"])
        counts.append(sum(m is moving for m in made))
    assert 2 <= counts[3] <= route.CACHED_UNROLLINGS
    assert counts[-1] == counts[3]


@pytest.mark.parametrize("case", DECIDED)
def test_one_run_at_a_point_gives_the_decisions_too(case, monkeypatch):
    """Once in a while one more, where a program is made that reads other tensors."""
    runs, evaluate = [], route.evaluate
    for module in (route, derivative):
        monkeypatch.setattr(module, "evaluate", lambda *a, **o: runs.append(a) or evaluate(*a, **o))
    moving, x = model(HEAD + DECIDED[case]), np.array([0.3, 0.4, 0.5])
    J = oj.linearize(moving, {"x": x, "n": np.array(6)}, wrt="x")
    for scale, most in ((1, 2), (1.01, 1), (1.02, 1), (-1, 9), (-1.01, 9), (-1.02, 1),
                        (-1.03, 1), (1.02, 2), (-1.01, 3), (-1, 1)):  # fmt: skip
        runs.clear()
        J = J.relinearize({"x": scale * x, "n": np.array(6)})
        J @ x
        assert len(runs) <= most, scale


@pytest.mark.parametrize(
    "dtype", [pytest.param("float", marks=pytest.mark.sampled(0)), "double"]
)
@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_long_recurrent_network_is_one_operator(kind, gates, dtype, monkeypatch):
    """The same products as with all time steps unrolled, in both modes and for the Hessian."""
    text = f"""<ir_version: 10, opset_import: ["": 21]> f ({dtype}[t,2,3] x,
        {dtype}[1,{2 * gates},3] W, {dtype}[1,{2 * gates},2] R) => ({dtype}[t,1,2,2] y, {dtype} f)
        {{ y = {kind}<hidden_size = 2>(x, W, R)  q = Mul(y, y)  f = ReduceSum<keepdims = 0>(q) }}"""
    model = oj.load(onnx.parser.parse_model(text))
    rng, kinds = np.random.default_rng(0), {"float": np.float32, "double": np.float64}
    shapes = {"x": (60, 2, 3), "W": (1, 2 * gates, 3), "R": (1, 2 * gates, 2)}
    point = {n: rng.standard_normal(s).astype(kinds[dtype]) for n, s in shapes.items()}

    def made():
        J = oj.linearize(model, point, of="y", wrt=["W", "R"])
        H = oj.hessian(model, point, of="f", wrt="R")
        v, u, w = (np.cos(np.arange(n)).astype(kinds[dtype]) for n in (*J.shape[::-1], H.shape[0]))
        return len(J.dag.edges), J @ v, J.T @ u, H @ w

    edges, *found = made()
    monkeypatch.setattr(route, "UNROLLED_NODES", 2000)
    model = oj.load(onnx.parser.parse_model(text))
    all_edges, *wanted = made()
    assert edges < 40 < 400 < all_edges
    tolerance = 1e-10 if dtype == "double" else 1e-3
    for y, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=tolerance * np.abs(z).max())


def test_a_long_scan_without_reads_of_its_own():
    """A difference to a captured row: its derivative reads nothing, but a Scan needs an input."""
    distances = model(f"""{HEAD}
        distances (float[1, 2] x) => (float[1, 1] y) <float[60, 2] z, int64[1] one = {{1}}>
        {{ last, d = Scan <num_scan_inputs = 1, body = row (float[1, 2] s, float[2] r)
              => (float[1, 2] t, float[1] out)
              {{ t = Identity(s) c = Sub(s, r) out = ReduceSumSquare <keepdims = 0> (c, one) }}>
            (x, z)
          e = Neg(d) f = Exp(e) y = ReduceSum(f) }}""".replace(
        "float[60, 2] z", f"float[60, 2] z = {{{', '.join(map(str, np.linspace(-1, 1, 120)))}}}"))
    H = oj.hessian(distances, {"x": np.array([[0.3, -0.2]])})
    assert H.check()
    assert H.T.check()


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_a_long_loop_in_a_branch_is_one_operator(engine, monkeypatch):
    """Its second derivative too, where an If asks whether there are turns at all."""
    text = f"""{HEAD} looped (bool go, int64 n, float[2] x) => (float[2] y)
        {{ y = If (go) <
            then_branch = then () => (float[2] a)
            {{ s = Loop (n, , x) <body = turn (int64 i, bool b, float[2] s) => (bool c, float[2] t)
                {{ c = Identity(b)  p = Mul(s, x)  t = Sin(p) }}>
              a = Exp(s) }},
            else_branch = other () => (float[2] b) {{ b = Neg(x) }}> }}"""
    looped = model(text)
    point = {"go": np.array(True), "n": np.array(60), "x": np.array([1.2, 1.4])}

    def made():
        J = oj.linearize(looped, point, wrt="x", engine=engine)
        moved = J.relinearize({**point, "x": np.array([1.3, 1.1])})
        H = oj.hessian(looped, point, wrt="x", weights=np.ones(2), engine=engine)
        return len(J.dag.edges), J.toarray(), moved.toarray(), H.toarray()

    edges, *found = made()
    monkeypatch.setattr(route, "UNROLLED_NODES", 2000)
    looped = model(text)
    all_edges, *wanted = made()
    assert edges < 10 < 100 < all_edges
    for y, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-10)
