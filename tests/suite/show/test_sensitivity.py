"""Pictures of sensitivities: maps of images, bars of features."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose

import onnxjac as oj
from show.examples import dense, images, parsed

plot = oj.plots.plot_sensitivity


@pytest.fixture(scope="module")
def J():
    return images()


def test_a_map_of_all_outputs_is_the_norm_over_them(J):
    ax = plot(J, sample=1)
    rows = J.toarray().reshape(-1, 2, 2, 5, 6)[:, 1]
    assert_allclose(ax.images[0].get_array(), np.sqrt((rows**2).sum(axis=(0, 1))))
    assert ax.get_title() == "‖∂y/∂x‖"


def test_a_map_of_one_output_is_the_norm_over_channels(J):
    ax = plot(J, entry=(0, 2, 1, 3))
    row = J.toarray().reshape(2, 3, 4, 5, 2, 2, 5, 6)[0, 2, 1, 3, 0]
    assert_allclose(ax.images[0].get_array(), np.linalg.norm(row, axis=0))
    assert ax.get_title() == "‖∂y[0, 2, 1, 3]/∂x‖"


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_image_is_beside_its_map(channels):
    J = images(channels)
    parent = plt.subplots()[1]
    ax = plot(J, ax=parent)
    beside = parent.child_axes[0]
    x = J.point["x"][0]
    shown = beside.images[0].get_array()
    colour = np.moveaxis((x - x.min()) / np.ptp(x), 0, -1)
    assert_allclose(shown, colour if channels == 3 else x.mean(axis=0))
    assert beside.get_title() == "x[0]"
    assert ax is parent.child_axes[1]


def test_features_are_drawn_as_bars_with_names():
    J = dense()["y", "x"]
    ax = plot(J, entry=(1, 0), sample=1)
    row = J.toarray().reshape(3, 2, 3, 4)[1, 0, 1]
    assert_allclose([bar.get_height() for bar in ax.patches], np.abs(row))
    assert ax.get_ylabel() == "output per input"
    ax = plot(J, entry=(1, 0), sample=1, features="abcd")
    assert_allclose([bar.get_width() for bar in ax.patches], np.abs(row))
    assert [text.get_text() for text in ax.get_yticklabels()] == list("abcd")


def test_a_single_row_is_a_table():
    model = parsed("g (double[4] x) => (double[4] y) { y = Mul(x, x) }")
    x = np.arange(1.0, 5)
    ax = plot(oj.linearize(model, {"x": x}))
    assert_allclose([bar.get_height() for bar in ax.patches], 2 * x)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"entry": (0, 9, 0, 0)}, r"of shape 2×3×4×5: .*; entry=\(0, 0, 0, 0\) is"),
     ({"sample": 2}, "2 samples"), ({"sample": 0.5}, "a whole number"),
     ({"features": "ab"}, "not images")],
)  # fmt: skip
def test_plots_of_images_reject_wrong_options(J, options, message):
    with pytest.raises(oj.InputError, match=message):
        plot(J, **options)


def test_an_input_that_is_neither_images_nor_a_table():
    model = parsed("g (double[1, 1, 3, 5, 5] x) => (double[1, 1, 3, 5, 5] y) { y = Tanh(x) }")
    with pytest.raises(oj.InputError, match=r"'x' has shape 1×1×3×5×5.*\(N, C, H, W\)"):
        plot(oj.linearize(model, {"x": np.ones((1, 1, 3, 5, 5))}))


def test_only_one_tensor_by_one_other():
    with pytest.raises(oj.InputError, match=r'take a block.*J\["y", "x"\]'):
        plot(dense())
    with pytest.raises(oj.InputError, match="linearize"):
        plot(dense()["y", "x"].T)
    with pytest.raises(oj.InputError, match="4 features, and 2 names"):
        plot(dense()["y", "x"], features="ab")


def test_embedded_tokens_are_drawn_as_bars_of_norms():
    """A norm over the width of each token, by its name."""
    model = parsed("""g (double[2,3,4] x) => (double[2,5] y) <int64[1] a = {1}, double[4,5] w = {
        1,2,3,4,5, -1,0,1,2,3, 0.5,1,0,-2,1, 3,1,-1,0,2}>
        { t = Tanh(x) m = ReduceMean<keepdims=0>(t, a) y = MatMul(m, w) }""")
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    J = oj.linearize(model, {"x": x})
    ax = plot(J, entry=(1, 2), sample=1, features=["the", "small", "cat"])
    row = J.toarray().reshape(2, 5, 2, 3, 4)[1, 2, 1]
    assert_allclose([bar.get_width() for bar in ax.patches], np.linalg.norm(row, axis=-1))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["the", "small", "cat"]
    assert plot(J).get_xlabel() == "token"
    with pytest.raises(oj.InputError, match="3 tokens, and 1 names"):
        plot(J, features=["the"])
