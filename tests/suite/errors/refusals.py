"""A refusal: one error of onnxjac's own, in one line."""

import pytest

import onnxjac as oj


def refused(error, match, action):
    """Check that the action raises this error, with one line that matches."""
    with pytest.raises(error, match=match) as caught:
        action()
    assert isinstance(caught.value, oj.OnnxJacError)
    assert "\n" not in str(caught.value)
