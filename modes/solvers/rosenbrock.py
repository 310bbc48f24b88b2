"""Rosenbrock: the method Rodas5P of order 5, for M u̇ = f(t, u), stiff or differential-algebraic.

Eight stages, each one linear system with the same matrix M − γ h J, J exact at every step: no
Newton iteration. Stiffly accurate, A-stable, with an embedded method of order 4 and dense output of
order 4.

Source: Steinebach, "Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks
within the Julia Differential Equations package", BIT 63, 2023.
"""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.integrate import DenseOutput

from .implicit_system import scaled_norm
from .step_control import Stepper

GAMMA_STAGE = 0.21193756319429014

STAGES_A = [
    [],
    [3.0],
    [2.849394379747939, 0.45842242204463923],
    [-6.954028509809101, 2.489845061869568, -10.358996098473584],
    [2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641],
    [-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256,
     0.030198172008377946],
]  # fmt: skip
"""a: stage i is at u + Σ aᵢⱼ Uⱼ, the last two where the one before them led."""

STAGES_C = [
    [],
    [-14.155112264123755],
    [-17.97296035885952, -2.859693295451294],
    [147.12150275711716, -1.41221402718213, 71.68940251302358],
    [165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306],
    [24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125,
     -0.6610691825249471],
    [30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783,
     -19.097331116725623, -28.087943162872662],
    [37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047,
     -40.06618937091002, -54.66780262877968, -9.48861652309627],
]  # fmt: skip
"""c: what a stage adds of M Uⱼ."""

TIMES = [0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1, 1, 1]
DRIFTS = [GAMMA_STAGE, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734,
          2.325825639765069, 0, 0, 0]  # fmt: skip
"""The times of the stages, and their parts of h ∂f/∂t."""

DENSE_OUTPUT = np.array([
    [25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204,
     0.524948541321073, 1.1241088310450404, 0.4272876194431874, -0.17202221070155493],
    [-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796,
     20.176138334709044, 15.98066361424651, -6.789040303419874, -6.710236069923372],
    [11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643,
     -52.072871366152654, -59.78993625266729, -0.15582684282751913, 4.883087185713722],
])  # fmt: skip


@final
class Rosenbrock(Stepper):
    """(M − γ h J) Uᵢ = γ (h f(t + αᵢ h, u + Σⱼ aᵢⱼ Uⱼ) + M Σⱼ cᵢⱼ Uⱼ + γᵢ h² ∂f/∂t), i = 1 … 8."""

    order = 4
    at: float | None = None

    def rescale(self, h: float) -> None:
        self.h = h

    def attempt(self, t: float) -> tuple[np.ndarray, float]:
        """u at t, with U₈ as its error."""
        system, h, scale = self.system, t - self.t, self.tolerance(self.y)
        if self.at != self.t:
            self.J, self.drift = system.jacobian(self.t, self.y), system.drift(self.t, self.y)
            self.at = self.t
        solve, U, y = system.solves(GAMMA_STAGE * h, self.J, scale), np.zeros((8, self.n)), self.y
        for i in range(8):
            y = self.y + STAGES_A[i] @ U[:i] if i < 6 else y + U[i - 1]
            f = h * system.rates(self.t + TIMES[i] * h, y) + h**2 * DRIFTS[i] * self.drift
            U[i] = solve(GAMMA_STAGE * (f + system.momentum(STAGES_C[i] @ U[:i])))
        self.before, self.U, y = self.y, U, y + U[7]
        scale = self.tolerance(np.maximum(np.abs(y), np.abs(self.y)))
        return y, scaled_norm(U[7], scale)

    def accepted(self, error: float) -> None:
        """The next length."""
        self.h *= self.factor(error, self.order)

    def _dense_output_impl(self) -> DenseOutput:
        return Rodas(self.t_old, self.t, self.before, self.y, DENSE_OUTPUT @ self.U)


@final
class Rodas(DenseOutput):
    """(1 − θ) u + θ (u₊ + (1 − θ) (k₁ + θ (k₂ + θ k₃))), θ from 0 to 1."""

    def __init__(
        self, t_old: float, t: float, before: np.ndarray, after: np.ndarray, inner: np.ndarray
    ) -> None:
        super().__init__(t_old, t)
        self.ends, self.inner = (before, after), inner

    def _call_impl(self, t: np.ndarray) -> np.ndarray:
        part = np.expand_dims((t - self.t_old) / (self.t - self.t_old), -1)
        (before, after), (first, second, third) = self.ends, self.inner
        inside = (1 - part) * (first + part * (second + part * third))
        return np.asarray((1 - part) * before + part * (after + inside)).T
