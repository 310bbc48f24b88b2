"""ONNX's tags against the proofs: the table is complete, and these are the findings."""

import csv
import io
import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest

import onnxjac as oj
from house import ROOT

DISAGREEMENTS = {
    "AffineGrid": {"theta"}, "BatchNormalization": {"running_mean", "running_var"},
    "CausalConvWithState": {"past_state", "present_state"}, "Clip": {"min", "max"},
    "DFT": {"input"}, "Dropout": {"ratio"}, "GRU": {"initial_h"}, "GridSample": {"grid"},
    "Hardmax": {"input", "output"}, "LSTM": {"initial_h", "initial_c"},
    "LinearAttention": {"past_state", "present_state"}, "Mod": {"B"},
    "NegativeLogLikelihoodLoss": {"weight"}, "OneHot": {"values", "output"},
    "Pad": {"constant_value"}, "RNN": {"initial_h"}, "Resize": {"roi", "scales"},
    "STFT": {"signal", "window", "output"}, "SoftmaxCrossEntropyLoss": {"weights"},
    "Unique": {"X", "Y"},
}  # fmt: skip


@pytest.fixture(scope="module")
def table():
    return oj.tags()


def test_every_operator_and_port_has_a_verdict(table):
    live = {
        (s.domain or "ai.onnx", s.name) for s in onnx.defs.get_all_schemas() if not s.deprecated
    }
    assert live <= {(row.domain, row.op_type) for row in table}
    assert all(row.verdict and row.evidence for row in table)


def test_tags_disagree_with_proofs_where_listed(table):
    found = {}
    for row in table.disagreements():
        found.setdefault(row.op_type, set()).add(row.port)
    assert found == DISAGREEMENTS


def test_only_hardmax_is_tagged_differentiable_and_is_not(table):
    assert {r.op_type for r in table.disagreements() if r.onnx == "differentiable"} == {"Hardmax"}


def test_no_port_is_left_out_of_the_cases(table):
    """Ports called piecewise constant without a proof are never tagged differentiable by ONNX."""
    assert not [
        r for r in table if r.evidence.startswith("it decides") and r.onnx == "differentiable"
    ]


def test_every_format_has_every_row(table):
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert len(rows) == len(json.loads(table.json())) == len(table)
    assert len(table.markdown().splitlines()) == len(table) + 2


def test_tags_of_an_unknown_operator_are_refused():
    with pytest.raises(oj.UnsupportedOp, match="no operator 'Hardmx'"):
        oj.tags("Hardmx")


def test_import_does_not_pay():
    """Neither `import onnxjac` nor the rules read in numbers load the symbols reading."""
    code = "import sys, onnxjac; print([m for m in sys.modules if 'ops.symbols' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ports_that_onnx_tags_as_not_differentiable_work_without_fuss():
    model = oj.load(onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        clip (double[3] x, double low, double high) => (double[3] y) { y = Clip(x, low, high) }
    """))  # fmt: skip
    point = {"x": np.array([-3.0, 0.5, 3.0]), "low": np.float64(-1), "high": np.float64(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        J = oj.linearize(model, point, wrt=["low", "high"])
    np.testing.assert_array_equal(J.toarray(), [[1, 0], [0, 0], [0, 1]])


def test_the_page_of_findings_counts_right(table):
    """docs/results/findings.md matches the table."""
    text = (ROOT / "docs/results/findings.md").read_text()
    agreed = sum(row.agreement == "agrees" for row in table)
    silent = sum(row.agreement == "ONNX says nothing" for row in table)
    differ, open_ = len(table.disagreements()), len(table.untagged())
    assert f"225 operators, {len(table)} inputs and outputs" in text
    assert f"| tag and proof agree | {agreed} |" in text
    assert f"| {differ}, of {len(DISAGREEMENTS)} operators |" in text
    assert f"| untagged, and differentiable (section 3) | {open_} |" in text
    assert f"| untagged, and not differentiable | {silent - open_} |" in text
    assert all(name in text for name in DISAGREEMENTS)
