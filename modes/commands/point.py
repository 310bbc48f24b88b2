"""Point: the model and the point that the options of a command name."""

from __future__ import annotations

import zipfile
import zlib
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from ..linearization import Linearization
from ..linearize import linearize
from ..load import load
from ..model import Model
from ..primal.inputs import check_inputs
from ..reporting.draw import draw_inputs


@dataclass(frozen=True)
class At:
    """A model at a point; `given` is the part of the point that a file gave."""

    model: Model
    point: dict[str, Any]
    given: dict[str, Any]


def at_point(args: Namespace) -> At:
    """The model of a command, at its `--input`, and at random where that says nothing."""
    model = load(args.model, dtype=args.dtype)
    given = arrays(args.input) if args.input else {}
    point = check_inputs(model, draw_inputs(model, given, dict(args.shape), seed=args.seed))
    return At(model, point, given)


def jacobian_at(at: At, args: Namespace) -> Linearization:
    """J of `--of` by `--wrt`."""
    return linearize(at.model, at.point, of=args.of, wrt=args.wrt, engine=args.engine)


def arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name."""
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                file.seek(0)
                return dict(np.load(file))
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path!r} holds what is not a plain array: {error}") from error
    raise InputError(f"{path!r} is not an npz file: np.savez writes them")
