"""The nonlinear regression problems of NIST, read from NIST's own files.

Each of the 27 files of the folder nist is a table of the Statistical Reference Datasets of the
National Institute of Standards and Technology, https://www.itl.nist.gov/div898/strd/nls, in the
public domain: formula, two starting points, certified values and data.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import onnxjac as oj
from solvers.formulas import residual

FOLDER = Path(__file__).parent / "nist"
NAMES = sorted(path.stem for path in FOLDER.glob("*.dat"))


@dataclass(frozen=True)
class Regression:
    """y = f(b, x) + e, with starting points and certified values."""

    response: str
    formula: str
    starts: tuple[dict[str, float], dict[str, float]]
    certified: dict[str, float]
    squares: float
    data: dict[str, np.ndarray]

    def model(self) -> oj.Model:
        """The residual as a model, with an input for every parameter and variable."""
        return oj.load(residual(self.response, self.formula, self.certified, self.data))


def regression(name: str) -> Regression:
    """The problem of that name."""
    text = (FOLDER / f"{name}.dat").read_text()
    rows = re.findall(r"^ *(b\d) = +(\S+) +(\S+) +(\S+)", text, re.MULTILINE)
    columns = [{row[0]: float(row[k]) for row in rows} for k in (1, 2, 3)]
    (squares,) = re.findall(r"Residual Sum of Squares: +(\S+)", text)
    response, formula = _formula(text)
    data = _data(text)
    return Regression(response, formula, tuple(columns[:2]), columns[2], float(squares), data)


def _formula(text: str) -> tuple[str, str]:
    """Both sides of the equation, in Python's notation."""
    equation = re.search(r"^ *(y|log\[y\]) += (.*?)\+ *e\s*$", text, re.MULTILINE | re.DOTALL)
    sides = (re.sub(r"\bpi\b", str(np.pi), " ".join(s.split())) for s in equation.groups())
    response, formula = (side.translate(str.maketrans("[]", "()")) for side in sides)
    return response, formula


def _data(text: str) -> dict[str, np.ndarray]:
    """The columns of the table by name."""
    header, _, table = text.rpartition("Data:")[2].partition("\n")
    columns = np.array([line.split() for line in table.splitlines() if line.strip()], float).T
    return dict(zip(header.split(), columns, strict=True))
