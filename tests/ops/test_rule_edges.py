"""The corners of the rules that no case of ONNX reaches: most once let a mutant live."""

import numpy as np
import pytest

from check_rule import check_rule
from onnxjac.ops import Node, Step
from onnxjac.ops.numbers import numbers
from onnxjac.ops.rules.pointwise import dropout


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_entries_that_are_all_masked_out_have_no_softmax():
    x = np.array([[-np.inf, -np.inf], [0.0, np.log(3.0)]])
    dense = np.zeros((4, 4))
    dense[2:, 2:] = [[3 / 16, -3 / 16], [-3 / 16, 3 / 16]]
    check_rule("Softmax", [x], dense=dense)


def test_without_a_mask_an_output_of_zero_was_dropped():
    y = np.array([0.0, 2.0, 4.0, 0.0])
    step = Step("Dropout", "", 21, "dropout", ("x", "ratio", "training"), ("y",))
    node = Node(step, (np.arange(4.0), np.array(0.5), np.array(True)), (y, None))
    np.testing.assert_array_equal(dropout(numbers, node)[0, 0].diagonal(), [0, 2, 2, 0])
