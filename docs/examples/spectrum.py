"""The largest eigenvalues of a Hessian over the data of all ranks, and its trace.

`mpirun -n 4 python -m mpi4py spectrum.py` prints the same as one process: every rank has its own
samples, and each product is one all-reduce of 640 numbers and one more.
"""

from pathlib import Path

import numpy as np
from mpi4py import MPI
from scipy.sparse.linalg import eigsh

import onnxjac as oj

MODELS = Path(__file__).parents[2] / "notebooks" / "models"

comm = MPI.COMM_WORLD
network = oj.load(MODELS / "digits.onnx", dtype="float64")
model = oj.with_loss(network, "cross_entropy", target="digit")
images = np.load(MODELS / "digits_samples.npz")["image"]
own = slice(comm.rank, None, comm.size)
data = {"image": images[own], "digit": np.arange(10)[own]}

H = oj.hessian(model, data, wrt="fc2.weight", reduction="mean", comm=comm)
start = np.random.default_rng(0).standard_normal(H.shape[0])  # the same on all ranks
largest = eigsh(H, k=3, v0=start, return_eigenvectors=False)
trace = oj.estimators.trace(H, seed=0)
if comm.rank == 0:
    print("eigenvalues", *(f"{value:.6g}" for value in largest))
    print("trace", f"{trace.value:.6g}")
