"""Every transform of PyTorch and JAX of a function that ONNX computes: what it gives of the same
function written there, to the third order; or a refusal by name.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.models import parsed

jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
from torch.autograd import forward_ad, functional  # noqa: E402
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, linearize, vjp, vmap  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

pytestmark = pytest.mark.peers

MODEL = parsed("g (double[3] x) => (double[3] y) { s = Sin(x) p = Mul(s, x) y = Mul(p, x) }")
X, V = np.array([0.1, 0.5, 2.0]), np.array([1.0, -2.0, 3.0])


def scalar(f):
    return lambda x: f(x).sum()


def leaf(x):
    return x.clone().requires_grad_()


def twice(f, x):
    (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return g, torch.autograd.grad((g * g).sum(), x)[0]


def once(f, x):
    f(x).sum().backward()
    return x.grad


def checkpointed(f, again):
    return lambda x: checkpoint(lambda z: f(2 * z), x, use_reentrant=again)


def dual(f, x, v):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, v))).tangent


def within(mode, f, x):
    with mode:
        return f(x)


def called(f, w, v):
    module = torch.nn.Module()
    module.w, module.forward = torch.nn.Parameter(w), lambda z: f(module.w * z)
    return grad(lambda w: functional_call(module, {"w": w}, (v,)).sum())(w)


def half(f, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return twice(f, leaf(x))


OF_TORCH = {
    "linearize": lambda f, x, v: [linearize(f, x)[1](c * v) for c in (1, 2, -0.5)],
    "linearize a gradient": lambda f, x, v: [linearize(grad(scalar(f)), x)[1](c * v)
                                             for c in (1, 2)],
    "vmap of linearize": lambda f, x, v: vmap(linearize(f, x)[1])(torch.stack([v, x])),
    "linearize of vmap": lambda f, x, v: linearize(vmap(f), torch.stack([v, x]))[1](
        torch.stack([x, v])),
    "jvp of jvp": lambda f, x, v: jvp(lambda x: jvp(f, (x,), (v,))[1], (x,), (v,)),
    "vjp of vjp": lambda f, x, v: vjp(lambda x: vjp(f, x)[1](v)[0], x)[1](v),
    "jvp of vjp of jvp": lambda f, x, v: jvp(
        lambda x: vjp(lambda x: jvp(f, (x,), (v,))[1], x)[1](v)[0], (x,), (v,)),
    "jacfwd of jacrev": lambda f, x, v: jacfwd(jacrev(f))(x),
    "hessian": lambda f, x, v: torch.func.hessian(scalar(f))(x),
    "vmap of jacrev": lambda f, x, v: vmap(jacrev(f))(torch.stack([x, v])),
    "dual numbers": lambda f, x, v: dual(f, x, v),
    "functional_call": lambda f, x, v: called(f, x, v),
    "checkpoint": lambda f, x, v: twice(checkpointed(f, False), leaf(x)),
    "reentrant checkpoint": lambda f, x, v: once(checkpointed(f, True), leaf(x)),
    "saved on the host": lambda f, x, v: within(
        torch.autograd.graph.save_on_cpu(), lambda x: twice(f, x), leaf(x)),
    "no_grad": lambda f, x, v: within(torch.no_grad(), f, leaf(x)),
    "inference_mode": lambda f, x, v: within(torch.inference_mode(), f, x),
    "autocast": lambda f, x, v: half(f, x),
    **{f"functional.{name}": lambda f, x, v, name=name: getattr(functional, name)(
        scalar(f) if name in ("hessian", "hvp", "vhp") else f, x,
        *[v] * (name in ("hvp", "vhp", "jvp", "vjp")))
       for name in ("jacobian", "hessian", "hvp", "vhp", "jvp", "vjp")},
}  # fmt: skip


def plain(x):
    return torch.sin(x) * x * x


@pytest.mark.parametrize("name", OF_TORCH)
def test_transforms_of_torch_give_those_of_the_plain_function(name):
    point = torch.tensor(X), torch.tensor(V)
    ours, theirs = (torch.utils._pytree.tree_leaves(OF_TORCH[name](f, *point))
                    for f in (MODEL.to_torch(), plain))  # fmt: skip
    for found, expected in zip(ours, theirs, strict=True):
        assert_allclose(found.detach(), expected.detach(), rtol=1e-9, atol=1e-12)


def test_an_operator_is_linearized_by_torch():
    J = oj.linearize(MODEL, {"x": X})
    product = linearize(J.to_torch(), torch.tensor(V))[1]
    for c in (1.0, -2.0):
        assert_allclose(product(torch.tensor(c * V)), J @ (c * V), rtol=1e-12)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_the_old_vmap_is_refused_by_name(strategy):
    with pytest.raises(oj.InputError, match=r"old vmap holds it; take torch\.func\.vmap, jacrev"):
        functional.jacobian(MODEL.to_torch(), torch.tensor(X), vectorize=True, strategy=strategy)


def turned(f, x, v):
    return jax.linear_transpose(jax.linearize(f, x)[1], x)(v)


def repeated(f, x, v):
    return jax.grad(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 3)[0].sum())(x)


def along(mode, f, v):
    """Jv or Jᵀv as a function of x."""
    forward = mode == "forward"
    return lambda x: jax.jvp(f, (x,), (v,))[1] if forward else jax.vjp(f, x)[1](v)[0]


def ordered(f, x, v, *modes):
    for mode in modes:
        f = along(mode, f, v)
    return jax.jit(f)(x)


OF_JAX = {
    "linearize": lambda f, x, v: [jax.linearize(f, x)[1](c * v) for c in (1, 2)],
    "linearize a gradient": lambda f, x, v: jax.linearize(jax.grad(scalar(f)), x)[1](v),
    "transposed": turned,
    "jvp of jvp": lambda f, x, v: jax.jvp(lambda x: jax.jvp(f, (x,), (v,))[1], (x,), (v,)),
    "vjp of vjp": lambda f, x, v: jax.vjp(lambda x: jax.vjp(f, x)[1](v)[0], x)[1](v),
    "third, forward": lambda f, x, v: ordered(f, x, v, *["forward"] * 3),
    "third, backward": lambda f, x, v: ordered(f, x, v, *["backward"] * 3),
    "fourth, mixed": lambda f, x, v: ordered(f, x, v, *["forward", "backward"] * 2),
    "vmap of second": lambda f, x, v: jax.vmap(along("forward", along("backward", f, v), v))(
        jax.numpy.stack([x, v])),
    "checkpoint": lambda f, x, v: ordered(jax.checkpoint(lambda x: f(2 * x)), x, v, "backward",
                                          "forward"),
    "scan": repeated,
    "cond": lambda f, x, v: jax.grad(lambda x: jax.lax.cond(
        x[0] < 1, scalar(f), jax.numpy.sum, x))(x),
}  # fmt: skip


@pytest.mark.parametrize("double", [True, False], ids=["64 bits", "32 bits"])
@pytest.mark.parametrize("name", OF_JAX)
def test_transforms_of_jax_give_those_of_the_plain_function(name, double):
    """A double model takes and gives 32 bits where JAX has no others."""
    with jax.enable_x64(double):
        point = jax.numpy.asarray(X), jax.numpy.asarray(V)
        ours, theirs = (jax.tree.leaves(OF_JAX[name](f, *point))
                        for f in (MODEL.to_jax(), lambda x: jax.numpy.sin(x) * x * x))  # fmt: skip
        for found, expected in zip(ours, theirs, strict=True):
            assert found.dtype == expected.dtype
            scale = {"rtol": 1e-9, "atol": 1e-12} if double else {"rtol": 1e-4, "atol": 1e-4}
            assert_allclose(found, expected, **scale)
