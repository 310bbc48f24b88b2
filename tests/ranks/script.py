"""The script that every process runs: operators over all ranks, and an error on one of them."""

import sys

import numpy as np

import onnxjac as oj
from data.regressions import DATA, UNEVEN, W, X, jacobian, softmax_hessian, softmax_regression
from onnxjac.jacobians.errors import InputError


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


if __name__ == "__main__":
    main(sys.argv[1])
