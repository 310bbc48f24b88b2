"""`J.explain()`: blocks, stretches, choices, cuts, kinks; and the rule of one step."""

import json

import numpy as np
import pytest

import onnxjac as oj
from linear.elimination.chains import random_dag
from onnxjac.modes.linear.elimination.plan import eliminated, planned
from onnxjac.modes.show.explain import mathematics, planning
from onnxjac.ops import DECLARATIONS, Step, find
from show.examples import X, network, parsed


@pytest.fixture(scope="module")
def J():
    return oj.linearize(network(), {"x": X}, wrt=["x", "W"])


@pytest.fixture(scope="module")
def found(J):
    return J.explain()


def test_every_block_has_a_row_with_its_costs(J, found):
    assert [row.op for row in found.rows] == ["Relu", "MaxPool", "Flatten", "MatMul", "MatMul",
                                              "Tanh", "Add"]  # fmt: skip
    assert [row.flops for row in found.rows] == [8, 0, 0, 24, 24, 3, 0]
    relu = found.rows[0]
    assert (relu.block, relu.structure, relu.nbytes) == ("∂r/∂x", "diag(1×1×2×4)", 64)
    assert all(row.costs.dense > 0 for row in found.rows)


def test_every_block_is_kept_or_in_a_stretch(found):
    numbers = {f"in {s.number}": s for s in found.stretches}
    for row in found.rows:
        assert row.after == "kept" or row.op in numbers[row.after].ops
    assert numbers


def test_choices_say_which_way_and_why(J, found):
    text = "\n".join(found.choices)
    assert "elimination: " in text
    assert "nothing yet" in text
    assert "toarray(): cheapest order " in text
    best = found.choices[-1].split(";")[0]
    assert "forward" not in best  # 20 columns, 3 rows
    assert ("J0, J1 … are" in found.choices[-1]) == ("J1 J0" in found.choices[-1])
    J = oj.linearize(network(), {"x": X}, wrt=["x", "W"]).plan(products=10000)
    J @ np.ones(20)
    assert "nothing yet" not in "\n".join(J.explain().choices)


def test_a_plan_from_a_narrow_input_leaves_the_other_blocks_as_they_are():
    model = parsed("""g (double[1,2] x, double[2,300] A, double[300,300] B, double[300,400] C,
          double[400,3000] D, double[1,400] k) => (double[1,3000] y)
        { h = MatMul(x, A) a = Tanh(h) q = MatMul(a, B) c = Tanh(q) r = MatMul(c, C) s = Add(r, k)
          t = Tanh(s) y = MatMul(t, D) }""")
    rng = np.random.default_rng(0)
    point = {name: rng.standard_normal(spec.shape) for name, spec in model.inputs.items()}
    found = oj.linearize(model, point, wrt=["x", "D"]).plan(products=10_000).explain()
    (stretch,) = found.stretches
    assert (stretch.start, stretch.end) == ("x", "t")
    assert stretch.choice.startswith("multiplied out")
    assert [row.after for row in found.rows[-2:]] == ["kept", "kept"]


def test_planning_counts_no_replaced_edge():
    dag = random_dag(22)
    own = {id(edge.operator) for edge in eliminated(dag).edges}
    made = [e.operator for e in planned(dag, 10_000, 10**8).edges if id(e.operator) not in own]
    assert (len(made), sum(J.nbytes for J in made)) == (2, 480)
    assert planning(dag) == "2 stretches, which hold 480 B"


def test_the_way_of_products_is_explained_in_words_that_do_not_change():
    said = []
    for _ in range(2):
        J = oj.linearize(network(), {"x": X}, wrt=["x", "W"])
        assert "products: none yet; the first ones go through the DAG" in J.explain().choices
        J @ np.ones((J.shape[1], 2))
        J @ np.ones(J.shape[1])
        J.T @ np.ones(J.shape[0])
        said.append(J.explain().choices)
    assert said[0] == said[1]
    assert sum("until the counted work of products" in choice for choice in said[0]) == 2


def test_a_large_diagonal_is_explained_without_its_matrix():
    """The dense matrix would take 32 TiB."""
    from onnx import parser

    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[n] x) => (float[n] y) { y = Tanh(x) }"""
    x = np.linspace(-1, 1, 3_000_000, dtype=np.float32)
    J = oj.linearize(oj.load(parser.parse_model(text)), {"x": x})
    assert "toarray(): cheapest order " in "\n".join(J.explain().choices)


def test_explain_lists_cuts_beside_other_paths(found):
    (cut,) = found.cuts
    assert cut.op == "Floor"
    assert found.zeros == ()


def test_kinks_come_with_those_first_that_are_met(found):
    counts = [(k.op, k.count, k.size) for k in found.kinks]
    assert counts == [("Relu", 2, 8), ("MaxPool", 1, 4), ("Floor", 0, 3)]


def test_only_kinks_that_are_met_are_shown(found):
    (table,) = (t for t in found.tables() if t.title == "kinks at this point")
    assert [(row[0], row[-2], row[-1]) for row in table.rows] == [
        ("Relu", "2 of 8", "0, as on the left"),
        ("MaxPool", "1 of 4", "all of it goes to the first of those that tie"),
    ]
    line = "kinks: 1 further kind looked at and not met (Floor)"
    assert line in found.lines
    assert line in str(found)
    assert line in found._repr_html_()


def test_one_line_says_that_no_kink_is_met(J):
    found = J.relinearize({"x": X + 0.25 + np.arange(8).reshape(X.shape) / 64}).explain()
    assert not any(t.title == "kinks at this point" for t in found.tables())
    (line,) = (line for line in found.lines if line.startswith("kinks: "))
    assert line == "kinks: 3 kinds looked at and not met (Floor, MaxPool, Relu)"


def test_a_transpose_is_explained_as_what_it_is_of(J, found):
    for other in (J.T.explain(), J.T.T.explain()):
        assert [row.block for row in other.rows] == [row.block for row in found.rows]


def test_a_block_has_its_own_rows(J):
    assert [row.op for row in J["y", "W"].explain().rows] == ["MatMul", "Tanh", "Add"]
    assert [k.op for k in J["y", "W"].explain().kinks] == ["Floor"]


def test_as_data_it_is_plain(J, found):
    data = json.loads(json.dumps(found.to_dict()))
    assert data["rows"][0]["op"] == "Relu"
    assert data["rows"][0]["costs"]["forward"] == found.rows[0].costs.forward
    assert json.loads(json.dumps(J.explain("h").to_dict()))["rows"][0]["op"] == "MatMul"


def test_a_checkpointed_jacobian_still_tells_its_kinks():
    J = oj.linearize(network(), {"x": X}, checkpoint=2)
    found = J.explain()
    assert found.rows == ()
    assert [k.op for k in found.kinks] == ["Relu", "MaxPool", "Floor"]
    assert "without checkpoint=" in str(J.explain("r"))


def test_loops_are_explained_turn_by_turn():
    text = """<ir_version: 10, opset_import: ["": 21]> g (double[3] x) => (double[3] y) {
        n = Constant<value = int64 {2}>() c = Constant<value = bool {1}>()
        y = Loop(n, c, x) <body = b (int64 i, bool k, double[3] s) => (bool m, double[3] t)
            { m = Identity(k) t = Relu(s) }> }"""
    import onnx.parser

    J = oj.linearize(oj.load(onnx.parser.parse_model(text)), {"x": np.array([0.0, 1.0, 2.0])})
    assert [k.count for k in J.explain().kinks] == [1, 1]
    assert "unrolled" in str(J.explain("Loop_2"))


# -- one step --------------------------------------------------------------------------------------


def test_the_rule_of_a_formula_is_printed_by_sympy(J):
    text = str(J.explain("t"))
    assert "Tanh (node 'Tanh_4', opset 21)" in text
    assert "             2\n∂Y/∂x = 1 - Y " in text
    assert "diag(1×3)" in text
    assert "1×3" in text


def test_a_step_is_found_by_its_name_too(J):
    assert str(J.explain("Tanh_4")) == str(J.explain("t")) == str(J.T.explain("t"))


def test_the_rule_of_a_matrix_product(J):
    found = J.explain("h")
    assert "y[*n, i, k] = sum(a[*n, i, j]*b[*n, j, k], j)" in str(found)
    assert [row.block for row in found.rows] == ["∂h/∂W", "∂h/∂f"]
    assert any(line.startswith("Kron: X ↦ A X Bᵀ") for line in found.legend)
    assert ("W", "input 1", "4×3", "float64") in found.tensors


def test_a_step_that_is_cut_says_why(J):
    text = str(J.explain("n"))
    assert "kinks: 1 kind looked at and not met (Floor)" in text
    assert "declared to be zero" in text
    assert "not on a differentiable way from (x, W) to (y)" in text


def test_a_tensor_that_nothing_computes(J):
    found = J.explain("W")
    assert "an initializer" in found.title
    assert [row.block for row in found.rows] == ["∂h/∂W"]
    without = oj.linearize(network(), {"x": X}).explain("W")
    assert "name it with wrt='W'" in without.why


def test_an_unknown_name_is_refused_with_the_closest(J):
    with pytest.raises(oj.UnknownTensor, match=r"'Tanh_5'.*Did you mean .*'Tanh_4'"):
        J.explain("Tanh_5")


def test_a_hessian_is_explained_by_the_gradient():
    H = oj.hessian(network(), {"x": X}, weights=np.ones((1, 3)))
    assert H.explain().rows
    assert H.explain("x").rows


@pytest.mark.parametrize("name", sorted(k for k in DECLARATIONS if find(*k)), ids="::".join)
def test_every_operator_has_mathematics(name):
    op_type, domain = name
    found = mathematics(Step(op_type, domain, 21, "n", ("x",), ("y",)))
    assert found.source
    assert found.formulas
    assert all(line.strip() for line in found.formulas)


def test_a_formula_shows_its_attributes():
    step = Step("LeakyRelu", "", 21, "n", ("x",), ("y",), {"alpha": 0.25})
    assert mathematics(step).formulas[-1] == "alpha = 0.25"
