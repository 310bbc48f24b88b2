"""The script that every process runs: operators over all ranks, and an error on one of them."""

import os
import sys

import numpy as np

import onnxjac as oj
from data.regressions import DATA, UNEVEN, W, X, jacobian, softmax_hessian, softmax_regression
from onnxjac.jacobians.errors import InputError, OnnxJacError


def connected(library):
    """The communicator of a library, as the page says."""
    if library == "mpi4py":
        from mpi4py import MPI

        return MPI.COMM_WORLD
    import torch

    torch.distributed.init_process_group("gloo")
    return torch.distributed.group.WORLD


def main(library):
    comm = connected(library)
    rank = comm.Get_rank() if library == "mpi4py" else comm.rank()
    options = {"wrt": "W", "shared": {"W": W}, "comm": comm}
    own = UNEVEN[rank::2] if rank < 2 else []
    model, loss = softmax_regression(), {"of": "loss", "reduction": "mean"}
    H = oj.hessian(model, own, **loss, **options)
    assert np.abs(H.toarray() - softmax_hessian(X) / 23).max() < 1e-12
    g, there = oj.grad(model, own, **loss, **options), {**DATA, "W": W}
    assert np.abs(g["W"] - oj.grad(model, there, of="loss", wrt="W")["W"]).max() < 1e-12
    J = oj.linearize(model, own, of="logits", **options)
    assert np.abs((J.T @ J).toarray() - jacobian(X).T @ jacobian(X)).max() < 1e-12
    K, whole = (oj.kfac(model, data, at="logits", fisher_type="mc", **options | {"comm": group})
                for data, group in ((own, comm), (UNEVEN, None)))  # fmt: skip
    assert np.abs(K.toarray() - whole.toarray()).max() < 1e-12
    try:
        oj.gram(model, [{"x": X[:, :3]}] if rank == 1 else own, of="logits", **options)
    except InputError as error:
        print(f"rank {rank} has heard: {str(error)[:21]}", flush=True)
    if library == "torch":
        sys.modules["torch"].distributed.destroy_process_group()


def end_early(rank, store):
    """Rank 1 ends without a word before a product, which rank 0 waits for."""
    import torch

    group = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    options = {"of": "logits", "wrt": "W", "shared": {"W": W}, "comm": group}
    G = oj.gram(softmax_regression(), UNEVEN, **options)
    if rank == 1:
        os._exit(3)
    try:
        G @ np.ones(12)
    except OnnxJacError as error:
        print(str(error)[:21], flush=True)
        os._exit(0)  # the group of a lost rank cannot be left in order


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else end_early(int(sys.argv[1]), sys.argv[2])
