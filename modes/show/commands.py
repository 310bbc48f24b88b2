"""Commands of the shell, from `report` to `sweep`: their options, and what each of them does."""

from __future__ import annotations

import argparse
import os
import re
import zipfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import save_npz

from ...jacobians import Jacobian, shape_of, size
from ...jacobians.arrays import wide
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.text import joined
from ..export import MODES, export
from ..hessian import hessian
from ..model.primal.evaluate import evaluate
from ..model.primal.guards import GUARDS
from ..model.primal.names import Specs, names_of
from ..model.save import drafts, save, save_text
from ..training.lowering import lower_gradients
from ..verify import prove, tags
from ..verify.sweep import Shard, chosen, records, sweep
from ..verify.sweep import page as sweep_page
from . import report
from .output import COMMON, Output
from .page import Findings, page
from .point import At, at_point, jacobian_at
from .spectra import largest

Options = Mapping[str, Mapping[str, Any]]
"""Flags, or the name of a positional argument -> the keywords of `add_argument`."""

STATUS = """\
exit status: 0 all is well; 1 a check, a proof or a case failed, or the model, the input or the
file was refused, or nothing can be written; 2 usage; 130 interrupted; 143 ended by SIGTERM"""

Run = Callable[[Namespace, Output], bool]
"""Execute a command, and report its findings; returns whether all is well."""


@dataclass(frozen=True)
class Command:
    """A command: its name, a one-line description, its options, and the examples in its help.

    `keys` are the keys of its JSON object besides the common ones, each with its meaning.
    """

    name: str
    about: str
    options: Options
    examples: tuple[str, ...]
    keys: Mapping[str, str]
    run: Run

    @property
    def epilog(self) -> str:
        """Examples, the keys of the JSON, the exit status."""
        examples = "\n".join(f"  onnxjac {self.name} {example}" for example in self.examples)
        keys = "\n".join(f"  {key:<15} {text}" for key, text in {**COMMON, **self.keys}.items())
        head = "keys of the object that --json prints"
        return f"examples:\n{examples}\n\n{head}:\n{keys}\n\n{STATUS}"


COMMANDS: list[Command] = []


def command(
    name: str, about: str, options: Options, examples: tuple[str, ...], keys: Mapping[str, str]
) -> Callable[[Run], Run]:
    """Make a function a command."""

    def enter(run: Run) -> Run:
        COMMANDS.append(Command(name, about, options, examples, keys, run))
        return run

    return enter


# -- options ---------------------------------------------------------------------------------------


def named_shape(argument: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,64` → ("x", (1, 3, 64)); `x=` is a scalar.

    >>> named_shape("image=1,3,64,64")
    ('image', (1, 3, 64, 64))
    """
    found = re.fullmatch(r"(.+)=((?:\d+(?:,\d+)*)?)", argument)
    if found is None:
        raise argparse.ArgumentTypeError(f"{argument!r} is not like x=1,3,64,64")
    return found[1], tuple(int(size) for size in found[2].split(",") if size)


def natural(argument: str) -> int:
    """An integer 0, 1, 2, ..."""
    if not argument.isdecimal():
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number like 0, 1, 2, ...")
    return int(argument)


def numbers(argument: str) -> list[float]:
    """`1,0,-2.5` → [1.0, 0.0, -2.5].

    >>> numbers("1,0,-2.5")
    [1.0, 0.0, -2.5]
    """
    try:
        return [float(part) for part in argument.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{argument!r} is not like 1,0,-2.5") from None


def positive(argument: str) -> int:
    """An integer 1, 2, 3, ..."""
    if not argument.isdecimal() or not int(argument):
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number like 1, 2, 3, ...")
    return int(argument)


def shard(argument: str) -> Shard:
    """`2/4` → (2, 4): the second of four parts.

    >>> shard("2/4")
    (2, 4)
    """
    found = re.fullmatch(r"(\d+)/(\d+)", argument)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{argument!r} is not like 1/4, 2/4, 3/4, 4/4")
    return int(found[1]), int(found[2])


MODEL: Options = {"model": {"metavar": "MODEL.onnx", "help": "the model"}}

AT_POINT: Options = {
    **MODEL,
    "--wrt": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "by what to differentiate: inputs, weights, intermediates (all floating inputs)",
    },
    "--of": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "what to differentiate (all floating outputs)",
    },
    "--input": {
        "metavar": "FILE.npz",
        "help": "arrays by the names of inputs; inputs that are not in it are drawn at random",
    },
    "--shape": {
        "type": named_shape, "action": "append", "default": [], "metavar": "NAME=1,3,64,64",
        "help": "the shape of an input; an open size is 1, or the first at which the model runs",
    },
    "--seed": {"type": natural, "default": 0, "metavar": "N", "help": "of all that is random (0)"},
    "--dtype": {"choices": ["float64"], "help": "raise the whole model to double precision"},
    "--engine": {"choices": ["onnxruntime", "numpy"], "help": "what runs the model"},
}  # fmt: skip

TALK: Options = {
    "--json": {"action": "store_true", "help": "one JSON object on stdout, and nothing else"},
    "--quiet": {"action": "store_true", "help": "no warnings, no progress, no list of files"},
}


def output(metavar: str, what: str = "the file to write", *, required: bool = True) -> Options:
    """`-o FILE`."""
    return {"-o --output": {"metavar": metavar, "help": what, "required": required}}


MOST = 5
"""Singular values in a report."""

# -- report, check ---------------------------------------------------------------------------------


@command(
    "report",
    "the Jacobian of a model at a point: structure, check, singular values, timings",
    {**AT_POINT,
     "--html": {"metavar": "FILE.html",
                "help": "the same as a page of its own, with pictures if matplotlib is there"}},
    ("model.onnx", "model.onnx --shape image=1,3,64,64 --seed 7",
     "model.onnx --input point.npz --wrt fc1.weight fc1.bias --of logits",
     "model.onnx --dtype float64 --engine numpy --html report.html",
     "model.onnx --json > report.json"),
    {**report.KEYS,
     "file": "with --html the page that was written",
     "pictures": "with --html how many pictures are in it"},
)  # fmt: skip
def run_report(args: Namespace, out: Output) -> bool:
    """Each section as soon as it is computed; the page, if asked for, at the end."""
    at = at_point(args)
    facts = report.model_facts(at.model, args.model, at.point, at.given)
    summary = [report.model_text(at.model, facts)]
    out.tell(summary[-1], **facts)
    J = jacobian_at(at, args)
    found = J.explain()
    summary.append(report.jacobian_text(J, found))
    out.tell(summary[-1], jacobian=report.jacobian_facts(J), explanation=found.to_dict())
    outcome = J.check(seed=args.seed)
    out.tell(report.section("check", str(outcome).splitlines()),
             check=report.check_facts(outcome))  # fmt: skip
    with counting("singular values", "products") as tick:
        values = largest(J, MOST, seed=args.seed, tick=tick)
    summary.append(report.spectrum_text(values))
    out.tell(summary[-1], spectrum=values)
    times = report.timed(J, args.seed)
    summary.append(report.times_text(times))
    out.tell(summary[-1], times=times)
    if args.html:
        made = page(Findings(args.model, at.model, J, summary, outcome, found), args.seed)
        save_text(made, args.html)
        out.wrote(args.html, "written", pictures=made.count("<img "))
    return outcome.passed


@command(
    "check",
    "try a Jacobian on random vectors: adjoint, columns, central differences",
    AT_POINT,
    ("model.onnx", "model.onnx --dtype float64 --seed 7",
     "model.onnx --input point.npz --wrt fc1.weight --of logits --json"),
    {"jacobian": report.JACOBIAN_KEYS, "check": report.CHECK_KEYS},
)  # fmt: skip
def run_check(args: Namespace, out: Output) -> bool:
    """Every test of `J.check()`."""
    J = jacobian_at(at_point(args), args)
    outcome = J.check(seed=args.seed)
    facts = {"jacobian": report.jacobian_facts(J), "check": report.check_facts(outcome)}
    out.tell(f"{J}\n{outcome}", **facts)
    return outcome.passed


@command(
    "view",
    "write the graph of a model with its Jacobian as an HTML page, for any browser",
    {**AT_POINT, **output("OUT.html")},
    ("model.onnx -o graph.html", "model.onnx --wrt fc1.weight --of logits -o graph.html",
     "model.onnx --shape image=1,3,64,64 -o graph.html --json"),
    {"file": "the page that was written",
     "jacobian": report.JACOBIAN_KEYS},
)  # fmt: skip
def run_view(args: Namespace, out: Output) -> bool:
    """The page of `J.view()`."""
    J = jacobian_at(at_point(args), args)
    J.view().save(args.output)
    out.wrote(args.output, str(J), jacobian=report.jacobian_facts(J))
    return True


# -- jacobian, spectrum ----------------------------------------------------------------------------


@command(
    "jacobian",
    "write the Jacobian as a matrix, dense or sparse",
    {**AT_POINT, **output("OUT.npz", "the file to write; OUT.csv has the numbers alone, as text"),
     "--sparse": {"action": "store_true", "help": "as scipy.sparse.load_npz reads it"}},
    ("model.onnx -o jacobian.npz", "model.onnx --wrt fc1.weight fc1.bias --of logits -o J.npz",
     "model.onnx --input point.npz --sparse -o J.npz --json"),
    {"file": "the file that was written: `jacobian`, or with --sparse what SciPy writes; `of` and "
             "`wrt`, names of tensors; `of_offsets` and `wrt_offsets`, where each begins",
     "jacobian": report.JACOBIAN_KEYS,
     "sparse": "whether it is a sparse matrix",
     "entries": "how many entries were written"},
)  # fmt: skip
def run_jacobian(args: Namespace, out: Output) -> bool:
    """The matrix, dense or in SciPy's sparse format, with the names of rows and columns."""
    kind = Path(args.output).suffix.lower()
    if kind not in ("", ".npz", *((".csv",) if not args.sparse else ())):
        raise InputError(f"{args.output!r}: a {'sparse' if args.sparse else 'dense'} matrix is "
                         f"written as .npz{'' if args.sparse else ' or .csv'}")  # fmt: skip
    J = jacobian_at(at_point(args), args)
    matrix: Any = J.tosparse() if args.sparse else J.toarray()
    matrix = matrix.astype(wide(J.dtype), copy=False)  # npz files have no bfloat16
    with drafts(args.output) as draft:
        if kind == ".csv":
            np.savetxt(draft, matrix, delimiter=",", fmt="%.17g" if matrix.itemsize > 4 else "%.9g")
        else:
            write(draft, matrix, {**named("of", J.codomain), **named("wrt", J.domain)})
    entries = int(matrix.nnz if args.sparse else matrix.size)
    out.wrote(args.output, f"{J}, {entries:,} entries", jacobian=report.jacobian_facts(J),
              sparse=args.sparse, entries=entries)  # fmt: skip
    return True


def named(side: str, specs: Specs) -> dict[str, np.ndarray]:
    """Names of the tensors, and their offsets: where each begins, and where the last ends."""
    ends = accumulate((size(shape_of(spec)) for spec in specs), initial=0)
    return {side: np.array([spec.name for spec in specs]), f"{side}_offsets": np.array([*ends])}


def write(path: Path, matrix: Any, names: Mapping[str, np.ndarray]) -> None:
    """The matrix and the names in one archive, at this path without a further suffix."""
    with path.open("wb") as file:
        if isinstance(matrix, np.ndarray):
            np.savez(file, allow_pickle=False, jacobian=matrix, **names)
            return
        save_npz(file, matrix)
    with zipfile.ZipFile(path, "a") as archive:
        for name, array in names.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@command(
    "spectrum",
    "the largest singular values of a Jacobian, or eigenvalues of a Hessian",
    {**AT_POINT,
     "--k": {"type": positive, "default": 10, "metavar": "N", "help": "how many (10)"},
     "--hessian": {"action": "store_true",
                   "help": "eigenvalues of the second derivative of --of, a scalar"},
     "--weights": {"type": numbers, "metavar": "1,0,2",
                   "help": "with --hessian where --of has several entries: of their weighted sum, "
                           "by a weight for each, or one for all"}},
    ("model.onnx", "model.onnx --k 3 --wrt fc1.weight --of logits --json",
     "model_with_loss.onnx --hessian --of loss --wrt fc1.weight"),
    {"operator": "the operator, as a line of mathematics",
     "of": "singular values or eigenvalues",
     **report.SPECTRUM_KEYS},
)  # fmt: skip
def run_spectrum(args: Namespace, out: Output) -> bool:
    """The largest values, from products alone; false where the iteration fails."""
    at = at_point(args)
    A = hessian_at(at, args) if args.hessian else jacobian_at(at, args)
    what = "eigenvalues" if args.hessian else "singular values"
    with counting(what, "products") as tick:
        found = largest(A, args.k, eigenvalues=args.hessian, seed=args.seed, tick=tick)
    out.tell(f"{A}\n{report.spectrum_text(found, what)}", operator=str(A), of=what, **asdict(found))
    return not found.why


def hessian_at(at: At, args: Namespace) -> Jacobian:
    """H of the scalar that `--of` names, or of the sum of its entries by `--weights`."""
    of = names_of(at.model, args.of, at.model.outputs, "of")
    if len(of) != 1:
        raise InputError(f"a Hessian is of one scalar, not of {list(of)}: name it with --of")
    weights = weighted(at, of[0], args.weights)
    return hessian(at.model, at.point, of=of[0], wrt=args.wrt, weights=weights, engine=args.engine)


def weighted(at: At, of: str, weights: list[float] | None) -> np.ndarray | None:
    """The weights in the shape of a tensor, which has one entry where there are none."""
    shape = evaluate(at.model, at.point, [of])[of].shape
    if weights is None:
        if size(shape) != 1:
            raise InputError(f"a Hessian is of one number, but {of!r} has shape {list(shape)}: "
                             "--weights 1 is of the sum of its entries")  # fmt: skip
        return None
    if len(weights) not in (1, size(shape)):
        raise InputError(f"--weights has {len(weights)} numbers, but {of!r} has shape "
                         f"{list(shape)}: {size(shape)} entries")  # fmt: skip
    return np.broadcast_to(weights, size(shape)).reshape(shape)


# -- export, lower ---------------------------------------------------------------------------------


@command(
    "export",
    "write a derivative of a model as an ONNX model",
    {**AT_POINT, **output("OUT.onnx"),
     "--mode": {"choices": list(MODES), "default": "vjp", "help": "which derivative (vjp)"},
     "--guards": {"action": "store_true",
                  "help": "list the conditions on sizes and integers for a right result"}},
    ("model.onnx -o model_vjp.onnx", "model.onnx --mode vjp --wrt fc1.weight -o model_vjp.onnx",
     "model.onnx --mode jacobian --of logits -o model_jacobian.onnx"),
    {"file": "the file that was written",
     "nodes": "how many nodes the written model has",
     "inputs": "the names of its inputs",
     "outputs": "the names of its outputs",
     "guards": "the conditions on sizes and integers under which the model is right"},
)  # fmt: skip
def run_export(args: Namespace, out: Output) -> bool:
    """A JVP, VJP, ... as a model."""
    at = at_point(args)
    made = export(at.model, args.mode, at.point, of=args.of, wrt=args.wrt, engine=args.engine)
    save(made, args.output)
    inputs, outputs = ([value.name for value in ends] for ends in
                       (made.graph.input, made.graph.output))  # fmt: skip
    nodes = len(made.graph.node)
    ends = f"({joined(inputs, ', ')}) ↦ ({joined(outputs, ', ')})"
    held = next((entry.value for entry in made.metadata_props if entry.key == GUARDS), "")
    out.wrote(args.output, f"{ends}, {nodes} nodes", nodes=nodes, inputs=inputs, outputs=outputs,
              guards=held.splitlines())  # fmt: skip
    if args.guards:
        out.tell(f"right where\n{held}" if held else "right at every point")
    return True


@command(
    "lower",
    "replace the Gradient and optimiser nodes of a model by plain ones",
    {**MODEL, **output("OUT.onnx")},
    ("with_gradients.onnx -o plain.onnx",),
    {"file": "the file that was written", "nodes": "how many nodes the written model has"},
)  # fmt: skip
def run_lower(args: Namespace, out: Output) -> bool:
    """The model with plain operators instead of training operators."""
    made = lower_gradients(args.model)
    save(made, args.output)
    nodes = len(made.graph.node)
    out.wrote(args.output, f"{nodes} nodes", nodes=nodes)
    return True


# -- prove, tags, sweep ----------------------------------------------------------------------------


@command(
    "prove",
    "prove by SymPy that the derivative of an operator is right",
    {"name": {"metavar": "OPERATOR", "help": "Tanh, or ai.onnx.ml::Scaler"}},
    ("Tanh", "ai.onnx.ml::Scaler", "Softmax --json"),
    {"operator": "its name, with the domain where that is not ONNX's own",
     "outcome": "the worst of all cases: exact, 30 digits, refuted; or zero, estimator",
     "cases": "a list of objects: case, source of the definition, outcome, proved",
     "markdown": "the proof as a page"},
)  # fmt: skip
def run_prove(args: Namespace, out: Output) -> bool:
    """The proof as a page of Markdown; false where the proof fails."""
    domain, _, op_type = args.name.rpartition("::")
    proof = prove(op_type, domain)
    cases = [{"case": str(r.case), "source": r.source, "outcome": r.outcome, "proved": bool(r)}
             for r in proof.results]  # fmt: skip
    text = proof.markdown()
    out.tell(text, operator=proof.title, outcome=proof.outcome, cases=cases, markdown=text)
    return bool(proof)


@command(
    "tags",
    "compare ONNX's tags of differentiability with what is proved",
    {"--op": {"metavar": "NAME", "help": "one operator (all of them)"},
     "--format": {"choices": ["md", "csv"], "default": "md", "help": "of the table (md)"}},
    ("--op Clip", "--format csv > tags.csv", "--op Softmax --json"),
    {"tags": "a list with an object for each port: operator, port, ONNX's tag, verdict, evidence"},
)  # fmt: skip
def run_tags(args: Namespace, out: Output) -> bool:
    """The tags of one operator, or of all operators."""
    found = tags(args.op)
    text = found.csv() if args.format == "csv" else found.markdown()
    out.tell(text, tags=found.records())
    return True


@command(
    "sweep",
    "differentiate and check every case that ONNX ships for its operators",
    {"--op": {"nargs": "+", "default": [], "metavar": "NAME", "help": "of these operators only"},
     "--shard": {"type": shard, "default": (1, 1), "metavar": "K/N", "help": "part K of N parts"},
     "--jobs": {"type": positive, "default": os.cpu_count() or 1, "metavar": "N",
                "help": "processes (all cores)"},
     **output("FILE.md", "where to write the page, instead of stdout", required=False)},
    ("--op Softmax Resize", "-o SWEEP.md", "--shard 1/4 --jobs 2 --json"),
    {"file": "the page that was written, or null",
     "cases": "a list with an object for each case: name, operator, tag, the errors of its checks "
              "over those allowed, which failed"},
)  # fmt: skip
def run_sweep(args: Namespace, out: Output) -> bool:
    """Every case, as a page; false where a case fails."""
    positions = chosen(args.op, args.shard)
    results = []
    with counting("sweep", "cases", len(positions)) as tick:
        for result in sweep(positions, args.jobs):
            results.append(result)
            tick(1)
    text, cases = sweep_page(results), records(results)
    if args.output is None:
        out.tell(text, file=None, cases=cases)
    else:
        save_text(text, args.output)
        out.wrote(args.output, f"{len(results)} cases", cases=cases)
    return not any(result.failed for result in results)
