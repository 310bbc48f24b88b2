"""Stiff equations and DAEs as models, with solutions that are published or in closed form."""

import numpy as np
from scipy.sparse import csr_array

from solvers.models import parsed

VAN_DER_POL = parsed("""
van_der_pol (double[2] u) => (double[2] rate)
<int64[2] parts = {1, 1}, double mu = {1000.0}, double one = {1.0}>
{
    x, v = Split <axis = 0> (u, parts)
    xx = Mul (x, x)
    open = Sub (one, xx)
    push = Mul (open, v)
    damped = Mul (mu, push)
    a = Sub (damped, x)
    rate = Concat <axis = 0> (v, a)
}""")
"""Test Set for IVP Solvers, "VDPOL", in the time of the oscillator: at t = 2000 see below."""

VAN_DER_POL_AT_2000 = np.array([1.706167732170469, -0.8928097010248125e-3])

ROBERTSON = parsed("""
robertson (double[3] u) => (double[3] rate, double[3] dae)
<double[3, 3] slow = {-0.04, 0, 0, 0.04, 0, 0, 0, 0, 0}, double[3] fast = {1e4, -1e4, 0},
 double[3] fastest = {0, -3e7, 3e7}, int64[3] parts = {1, 1, 1}, double[1] one = {1.0},
 int64[1] zero = {0}, int64[1] two = {2}>
{
    a, b, c = Split <axis = 0> (u, parts)
    bc = Mul (b, c)
    bb = Mul (b, b)
    decay = MatMul (slow, u)
    back = Mul (fast, bc)
    on = Mul (fastest, bb)
    rate = Sum (decay, back, on)
    first = Slice (rate, zero, two)
    all = ReduceSum (u, zero)
    lost = Sub (all, one)
    dae = Concat <axis = 0> (first, lost)
}""")
"""Test Set for IVP Solvers, "ROBER": with the outputs `rate`, or `dae` and the mass (1, 1, 0)."""

ROBERTSON_AT_1E11 = np.array([0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050])


def brusselator(n):
    """u̇ = 1 + u² v − 4 u + D u″, v̇ = 3 u − u² v + D v″, D = 1/50, u = 1 and v = 3 at both ends."""
    d = 0.02 * (n + 1) ** 2
    return parsed(f"""
    brusselator (double[1, 1, {n}] u, double[1, 1, {n}] v)
        => (double[1, 1, {n}] du, double[1, 1, {n}] dv)
    <double[1, 1, 3] stencil = {{{d}, {-2 * d}, {d}}}, double one = {{1.0}}, double three = {{3.0}},
     double four = {{4.0}}, int64[6] ends = {{0, 0, 1, 0, 0, 1}}>
    {{
        uu = Mul (u, u)
        uuv = Mul (uu, v)
        inside = Pad (u, ends, one)
        spread = Conv (inside, stencil)
        loss = Mul (four, u)
        gain = Add (one, uuv)
        source = Sub (gain, loss)
        du = Add (source, spread)
        wide = Pad (v, ends, three)
        flux = Conv (wide, stencil)
        bu = Mul (three, u)
        change = Sub (bu, uuv)
        dv = Add (change, flux)
    }}""")


def brusselator_start(n):
    x = np.arange(1, n + 1) / (n + 1)
    return {"u": 1 + np.sin(2 * np.pi * x).reshape(1, 1, n), "v": np.full((1, 1, n), 3.0)}


INDEX_ONE = parsed("""
index_one (double[1] u, double[1] z) => (double[1] du, double[1] constraint)
{
    zz = Mul (z, z)
    uz = Mul (u, z)
    du = Neg (uz)
    zzz = Mul (zz, z)
    uu = Mul (u, u)
    uuu = Mul (uu, u)
    cubes = Sub (zzz, uuu)
    gap = Sub (z, u)
    constraint = Add (cubes, gap)
}""")
"""u̇ = −u z, 0 = z³ + z − u³ − u: u = z = 1 / (1 + t) from u = 1."""

FORCED = parsed("""
forced (double[2] u, double time) => (double[2] rate)
<int64[2] parts = {1, 1}, double stiff = {-1000.0}>
{
    a, b = Split <axis = 0> (u, parts)
    cosine = Cos (time)
    gap = Sub (a, cosine)
    fast = Mul (stiff, gap)
    sine = Sin (time)
    da = Sub (fast, sine)
    bb = Mul (b, b)
    half = Mul (bb, a)
    db = Neg (half)
    rate = Concat <axis = 0> (da, db)
}""")
"""u̇₁ = −1000 (u₁ − cos t) − sin t, u̇₂ = −u₁ u₂²: u = (cos t, 1 / (2 + sin t)) from (1, ½)."""


NODES = ", ".join(f"u{k}" for k in range(1, 9))

AMPLIFIER = parsed(f"""
amplifier (double[8] u, double t) => (double[8] f)
<int64[8] parts = {{1, 1, 1, 1, 1, 1, 1, 1}}, double omega = {{{200 * np.pi}}},
 double amplitude = {{0.1}}, double supply = {{6.0}}, double r0 = {{1e3}}, double r = {{9e3}},
 double half = {{4.5e3}}, double beta = {{1e-6}}, double one = {{1.0}}, double uf = {{0.026}},
 double passed = {{0.99}}, double base = {{0.01}}>
{{
    {NODES} = Split <axis = 0> (u, parts)
    phase = Mul (omega, t)
    wave = Sin (phase)
    ue = Mul (amplitude, wave)
    d1 = Sub (u2, u3)
    s1 = Div (d1, uf)
    e1 = Exp (s1)
    m1 = Sub (e1, one)
    g1 = Mul (beta, m1)
    d2 = Sub (u5, u6)
    s2 = Div (d2, uf)
    e2 = Exp (s2)
    m2 = Sub (e2, one)
    g2 = Mul (beta, m2)
    a1 = Sub (u1, ue)
    f1 = Div (a1, r0)
    a2 = Div (u2, half)
    b2 = Div (supply, r)
    c2 = Mul (base, g1)
    h2 = Sub (a2, b2)
    f2 = Add (h2, c2)
    a3 = Div (u3, r)
    f3 = Sub (a3, g1)
    a4 = Sub (u4, supply)
    b4 = Div (a4, r)
    c4 = Mul (passed, g1)
    f4 = Add (b4, c4)
    a5 = Div (u5, half)
    c5 = Mul (base, g2)
    h5 = Sub (a5, b2)
    f5 = Add (h5, c5)
    a6 = Div (u6, r)
    f6 = Sub (a6, g2)
    a7 = Sub (u7, supply)
    b7 = Div (a7, r)
    c7 = Mul (passed, g2)
    f7 = Add (b7, c7)
    f8 = Div (u8, r)
    f = Concat <axis = 0> (f1, f2, f3, f4, f5, f6, f7, f8)
}}""")
"""The transistor amplifier of the Test Set for IVP Solvers: M u̇ = f(t, u), M of rank 5 of 8.

Every row of M and f holds what flows into one node.
"""

AMPLIFIER_START = np.array([0.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 0.0])

AMPLIFIER_AT_02 = np.array([
    -0.5562145012262709e-2, 0.3006522471903042e1, 0.2849958788608128e1, 0.2926422536206241e1,
    0.2704617865010554e1, 0.2761837778393145e1, 0.4770927631616772e1, 0.1236995868091548e1,
])  # fmt: skip


def capacitors():
    """The mass of the amplifier: capacitors of 1, 2, … 5 µF between nodes, or to the ground."""
    M = np.zeros((8, 8))
    M[np.ix_([0, 1], [0, 1])] = 1e-6 * np.array([[-1, 1], [1, -1]])
    M[2, 2] = -2e-6
    M[np.ix_([3, 4], [3, 4])] = 3e-6 * np.array([[-1, 1], [1, -1]])
    M[5, 5] = -4e-6
    M[np.ix_([6, 7], [6, 7])] = 5e-6 * np.array([[-1, 1], [1, -1]])
    return csr_array(M)
