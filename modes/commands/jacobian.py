"""`onnxjac jacobian`: the matrix as a file."""

from __future__ import annotations

import zipfile
from argparse import Namespace
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import save_npz

from ...jacobians import shape_of, size
from ...jacobians.arrays import wide
from ..naming.names import Specs
from ..reporting import facts
from ..support.save import drafts
from .command import Command
from .options import ENDS, MODEL, POINT, output
from .output import Output
from .point import at_point, jacobian_at


def run(args: Namespace, out: Output) -> bool:
    """Dense, or sparse as SciPy reads it; names of rows and columns in both."""
    J = jacobian_at(at_point(args), args)
    matrix: Any = J.tosparse() if args.sparse else J.toarray()
    matrix = matrix.astype(wide(J.dtype), copy=False)  # NumPy's files do not know bfloat16
    with drafts(args.output) as draft:
        write(draft, matrix, {**named("of", J.codomain), **named("wrt", J.domain)})
    entries = int(matrix.nnz if args.sparse else matrix.size)
    out.wrote(args.output, f"{J}, {entries:,} entries", jacobian=facts.of_jacobian(J),
              sparse=args.sparse, entries=entries)  # fmt: skip
    return True


def named(side: str, specs: Specs) -> dict[str, np.ndarray]:
    """Names of the tensors, and where each begins and the last one ends."""
    ends = accumulate((size(shape_of(spec)) for spec in specs), initial=0)
    return {side: np.array([spec.name for spec in specs]), f"{side}_offsets": np.array([*ends])}


def write(path: Path, matrix: Any, names: Mapping[str, np.ndarray]) -> None:
    """The matrix and the names in one archive, under the very name that was asked for."""
    with path.open("wb") as file:
        if isinstance(matrix, np.ndarray):
            np.savez(file, allow_pickle=False, jacobian=matrix, **names)
        else:
            save_npz(file, matrix)
    if not isinstance(matrix, np.ndarray):
        with zipfile.ZipFile(path, "a") as archive:
            for name, array in names.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


JACOBIAN = Command(
    "jacobian",
    "write the Jacobian as a matrix, dense or sparse",
    run,
    {**MODEL, **ENDS, **POINT, **output("OUT.npz"),
     "--sparse": {"action": "store_true", "help": "as scipy.sparse.load_npz reads it"}},
    ("model.onnx -o jacobian.npz", "model.onnx --wrt fc1.weight fc1.bias --of logits -o J.npz",
     "model.onnx --input point.npz --sparse -o J.npz --json"),
    {"file": "the file that was written: `jacobian`, or with --sparse what SciPy writes; `of` and "
             "`wrt`, names of tensors; `of_offsets` and `wrt_offsets`, where each begins",
     "jacobian": facts.JACOBIAN,
     "sparse": "whether it is a sparse matrix",
     "entries": "how many entries were written"},
)  # fmt: skip
