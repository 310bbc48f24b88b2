"""Commands of the shell, from `report` to `view`: their parser, options, and what each does."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import zipfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir
from scipy.sparse import save_npz

from ...jacobians import Jacobian, shape_of, size
from ...jacobians.arrays import wide
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.text import joined
from ..attribution.attribution import Attribution
from ..attribution.grad_cam import grad_cam
from ..attribution.gradients import gradient_times_input, integrated_gradients, saliency, smoothgrad
from ..comparison.compare import compare
from ..embeddings import embeddings_of
from ..exports.export import MODES, export
from ..hessian import hessian
from ..linear.check import QUANTIZES, RIGHT, WRONG
from ..model.flow.conditions import where_right
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Specs, names_of
from ..model.save import drafts, save, save_text
from ..sensitivities.sensitivities import sensitivities
from ..sensitivities.weighed import CURVATURES
from ..training.lowering import lower_gradients
from ..verify import prove, tags
from . import report
from .output import COMMON, Output, page
from .report import ModelAtPoint, model_at, model_at_point, requested_jacobian
from .spectra import largest_values
from .view import view

Options = Mapping[str, Mapping[str, Any]]
"""Flags, or the name of a positional argument -> the keywords of `add_argument`."""

STATUS = """\
exit status: 0 all is well; 1 a check or a proof failed, models differ, or the model, the input or
the file was refused, or nothing can be written; 2 usage; 3 a check, a comparison or a proof could
not compare all, and says what and why; 130 interrupted; 143 ended by SIGTERM"""

Run = Callable[[Namespace, Output], str]
"""Execute a command, and report its findings; returns the verdict, `RIGHT` where all is well."""


@dataclass(frozen=True)
class Command:
    """A command: what it does, its options, and the examples in its help.

    `keys` are the keys of its JSON object besides the common ones, each with its meaning.
    """

    run: Run
    options: Options
    examples: tuple[str, ...]
    keys: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.run.__name__.removeprefix("run_")

    @property
    def about(self) -> str:
        """A sentence."""
        return self.run.__doc__ or ""

    @property
    def epilog(self) -> str:
        """Examples, the keys of the JSON, the exit status."""
        examples = "\n".join(f"  onnxjac {self.name} {example}" for example in self.examples)
        keys = "\n".join(f"  {key:<15} {text}" for key, text in {**COMMON, **self.keys}.items())
        head = "keys of the object that --json prints"
        return f"examples:\n{examples}\n\n{head}:\n{keys}\n\n{STATUS}"


COMMANDS: list[Command] = []


def command(*said: Any) -> Callable[[Run], None]:
    """Make a function a command, with the fields of `Command` after `run`."""
    return lambda run: COMMANDS.append(Command(run, *said))


# -- options ---------------------------------------------------------------------------------------


def of_kind(example: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type for argparse: what `read` makes of an argument, unless it raises ValueError.

    >>> of_kind("like x=1", named_shape)("image=1,3,64,64")
    ('image', (1, 3, 64, 64))
    """

    def checked(argument: str) -> Any:
        try:
            return read(argument)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{argument!r} is not {example}") from None

    return checked


def natural(argument: str, least: int = 0) -> int:
    """A decimal integer from `least` upwards."""
    if not argument.isdecimal() or int(argument) < least:
        raise ValueError
    return int(argument)


def named_shape(argument: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,64` → ("x", (1, 3, 64)); `x=` is a scalar."""
    name, sign, sizes = argument.rpartition("=")
    if not (name and sign):
        raise ValueError
    return name, tuple(map(natural, sizes.split(","))) if sizes else ()


def number_or_name(argument: str) -> int | str:
    """`4` → 4, `K` → "K"."""
    return int(argument) if argument.isdecimal() else argument


def parse_numbers(argument: str) -> list[float]:
    """`1,0,-2.5` → [1.0, 0.0, -2.5]."""
    return [float(part) for part in argument.split(",")]


class LossOptions(argparse.Action):
    """`cross_entropy at=logits axis=-1` → ("cross_entropy", {"at": "logits", "axis": -1})."""

    def __call__(self, _: Any, args: Namespace, values: Any, flag: str | None = None) -> None:
        kind, *settings = values
        options = {}
        for setting in settings:
            name, sign, text = setting.partition("=")
            if not (sign and name.isidentifier()):
                raise argparse.ArgumentError(self, f"{setting!r} is not like axis=-1")
            options[name] = setting_of(text)
        args.loss = kind, options


def setting_of(text: str) -> Any:
    """`-1` → -1, `[1,2]` → [1, 2], `logits` → "logits", `a,b` → ["a", "b"]."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.split(",") if "," in text else text


def parse_nonnegative(argument: str) -> float:
    """A number from 0 upwards."""
    if not 0 <= (value := float(argument)) < np.inf:
        raise ValueError
    return value


POSITIVE = of_kind("a number like 1, 2, 3, ...", partial(natural, least=1))

BATCH_SIZE = {"type": POSITIVE, "metavar": "N",
              "help": "cut the arrays of --input into batches of so many rows"}  # fmt: skip

MODEL: Options = {"model": {"metavar": "MODEL.onnx", "help": "the model"}}

AT_POINT: Options = {
    **MODEL,
    "--wrt": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "by what to differentiate: inputs, weights, intermediates (all floating inputs; "
                "without any, the vectors of tokens)",
    },
    "--of": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "what to differentiate (all floating outputs)",
    },
    "--loss": {
        "nargs": "+", "action": LossOptions, "metavar": ("KIND", "NAME=VALUE"),
        "help": "append a loss of PyTorch, such as cross_entropy, which is then --of, with options "
                "of oj.with_loss: at=logits target=label label_smoothing=0.1",
    },
    "--input": {
        "metavar": "FILE.npz",
        "help": "arrays by the names of inputs; others are drawn at random, but masks are ones",
    },
    "--shape": {
        "type": of_kind("like x=1,3,64,64", named_shape), "action": "append", "default": [],
        "metavar": "NAME=1,3,64,64",
        "help": "the shape of an input; an open size is 1, or the first at which the model runs",
    },
    "--seed": {"type": of_kind("a number like 0, 1, 2, ...", natural), "default": 0, "metavar": "N",
               "help": "of all that is random (0)"},
    "--dtype": {"choices": ["float64"], "help": "raise the whole model to double precision"},
    "--straight-through": {"action": "store_true",
                           "help": "let tangents pass rounding and quantisation"},
    "--dynamic-batch": {"action": "store_true",
                        "help": "free the first axes of the inputs, where the file fixes them"},
    "--engine": {"choices": ["onnxruntime", "numpy"], "help": "what runs the model"},
}  # fmt: skip

TALK: Options = {
    "--json": {"action": "store_true", "help": "one JSON object on stdout, and nothing else"},
    "--quiet": {"action": "store_true", "help": "no warnings, no progress, no list of files"},
}


def path(*suffixes: str) -> Callable[[str], str]:
    """A type for argparse: a path with one of these suffixes, or with none.

    >>> path(".html", ".htm")("graph.html")
    'graph.html'
    """

    def read(argument: str) -> str:
        if Path(argument).suffix.lower() not in ("", *suffixes):
            raise ValueError
        return argument

    return of_kind(f"a name with {' or '.join(suffixes)}", read)


HTML = path(".html", ".htm")
ONNX = path(".onnx", ".pb", ".textproto", ".onnxtxt", ".json")


def output(
    metavar: str, what: str = "the file to write", *, required: bool = True,
    kind: Callable[[str], str] = str,
) -> Options:  # fmt: skip
    """`-o FILE`, of a kind that `path` gives."""
    return {"-o --output": {"metavar": metavar, "help": what, "required": required, "type": kind}}


REPORTED_VALUES = 5
"""Singular values in a report."""


# -- report, check ---------------------------------------------------------------------------------


@command(
    {**AT_POINT,
     "--html": {"metavar": "FILE.html", "type": HTML,
                "help": "the same as a page of its own, with pictures if matplotlib is there"},
     "--verbose": {"action": "store_true", "help": "every test of the check, not one line"}},
    ("model.onnx", "model.onnx --shape image=1,3,64,64 --seed 7",
     "model.onnx --input point.npz --wrt fc1.weight fc1.bias --of logits",
     "model.onnx --dtype float64 --engine numpy --html report.html",
     "model.onnx --json > report.json"),
    {**report.KEYS,
     "file": "with --html the page that was written",
     "pictures": "with --html how many pictures are in it"},
)  # fmt: skip
def run_report(args: Namespace, out: Output) -> str:
    """The Jacobian of a model at a point: structure, check, singular values, timings."""
    at, summary = model_at_point(args), []

    def tell(text: str, **facts: Any) -> None:
        out.tell(text, **facts)
        summary.append(text)

    facts = report.model_facts(at.model, args.model, at.point, at.given)
    tell(report.model_text(at.model, facts), **facts)
    J = requested_jacobian(at, args)
    found = J.explain()
    tell(report.jacobian_text(J, found), jacobian=report.jacobian_facts(J),
         explanation=found.to_dict())  # fmt: skip
    outcome = J.check(seed=args.seed)
    out.tell(report.check_text(outcome, args.verbose), check=report.check_facts(outcome))
    with counting("singular values", "products") as tick:
        values = largest_values(J, REPORTED_VALUES, seed=args.seed, tick=tick)
    tell(report.spectrum_text(values), spectrum=values)
    times = report.timed(J, args.seed)
    tell(report.times_text(times), times=times)
    out.tell(report.next_text(args, at, J, outcome))
    if args.html:
        made = page(args.model, at.model, J, summary, outcome, found, seed=args.seed)
        save_text(made, args.html)
        out.wrote(args.html, "written", pictures=made.count("<img "))
    return outcome.verdict


@command(
    AT_POINT,
    ("model.onnx", "model.onnx --dtype float64 --seed 7",
     "model.onnx --input point.npz --wrt fc1.weight --of logits --json"),
    {"jacobian": report.JACOBIAN_KEYS, "verdict": "right, wrong, or not compared",
     "check": report.CHECK_KEYS},
)  # fmt: skip
def run_check(args: Namespace, out: Output) -> str:
    """Try a Jacobian on random vectors: adjoint, columns, central differences."""
    J = requested_jacobian(model_at_point(args), args)
    outcome = J.check(seed=args.seed)
    out.tell(f"{J}\n{outcome}", jacobian=report.jacobian_facts(J), verdict=outcome.verdict,
             check=report.check_facts(outcome))  # fmt: skip
    return outcome.verdict


@command(
    {**AT_POINT, **output("OUT.html", "the file to write (the name of the model, with .html, here)",
                          required=False, kind=HTML)},
    ("model.onnx", "model.onnx --wrt fc1.weight --of logits -o graph.html",
     "model.onnx --shape image=1,3,64,64 -o graph.html --json"),
    {"file": "the page that was written",
     "jacobian": report.JACOBIAN_KEYS},
)  # fmt: skip
def run_view(args: Namespace, out: Output) -> str:
    """Write the graph of a model with its Jacobian as an HTML page, for any browser."""
    J = requested_jacobian(model_at_point(args), args)
    target = args.output or f"{Path(args.model).stem}.html"
    view(J, Path(args.model).name).save(target)
    out.wrote(target, str(J), jacobian=report.jacobian_facts(J))
    return RIGHT


@command(
    {"model": MODEL["model"],
     "twin": {"metavar": "TWIN.onnx", "help": "the optimised, quantised or converted model"},
     **{flag: about for flag, about in AT_POINT.items() if flag != "model"},
     "--batch-size": BATCH_SIZE,
     "--rtol": {"type": of_kind("a number like 1e-3", parse_nonnegative), "metavar": "1e-3",
                "help": "the relative difference that is allowed (half of the digits)"},
     "--layers": {"type": of_kind("a number like 0, 1, 2, ...", natural), "default": 32,
                  "metavar": "N", "help": "compare the slopes of at most so many layers (32)"},
     "--html": {"metavar": "FILE.html", "type": HTML,
                "help": "the same as a page of its own, with pictures"}},
    ("model.onnx optimised.onnx",
     "model.onnx int8.onnx --straight-through --rtol 0.05 --html compare.html",
     "model.onnx converted.onnx --input samples.npz --batch-size 16 --of logits --json"),
    {"twin": "the file of the twin", "verdict": "right (equal), wrong (differs), or not compared",
     "rtol": "the relative difference that was allowed", "batches": "how many there were",
     "inputs": "a list of pairs of names: a, b, by (name, position or value)",
     "wrt": "what J differentiates by, pairs of names",
     "outputs": "a list with an object for each output: names, shape, values and slopes (relative "
                "differences), largest, agree, sigma and norm (‖J_a − J_b‖ and ‖J_a‖), batch, note",
     "layers": "the same for layers that both have",
     "alone": "outputs that one model has alone", "check": report.CHECK_KEYS,
     "file": "with --html the page that was written"},
)  # fmt: skip
def run_compare(args: Namespace, out: Output) -> str:
    """Compare a model with its twin: values, and slopes by the norm of J_a − J_b."""
    at, b = model_at_point(args), model_at(args.twin, args)
    found = compare(
        at.model, b, at.point, of=args.of, wrt=args.wrt, rtol=args.rtol, layers=args.layers,
        batch_size=args.batch_size, engine=args.engine, seed=args.seed,
    )  # fmt: skip
    found = replace(found, titles=(Path(args.model).name, Path(args.twin).name))
    out.tell(str(found), twin=args.twin, **found.to_dict())
    if found.verdict == WRONG and args.rtol is None and any(QUANTIZES.match(s.op_type)
                                                            for s in b.steps):  # fmt: skip
        out.tell("quantised numbers have few digits: with --rtol 0.05, say, so many are enough")
    if args.html:
        found.view().save(args.html)
        out.wrote(args.html, "written")
    return found.verdict


# -- sensitivities ---------------------------------------------------------------------------------


@command(
    {**{flag: about for flag, about in AT_POINT.items() if flag not in ("--of", "--wrt")},
     "--of": {"metavar": "NAME", "help": "the loss, if the model has one (its output)"},
     "--at": {"metavar": "NAME", "help": "the tensor before the loss, such as logits"},
     "--wrt": {"nargs": "+", "action": "extend", "metavar": "NAME",
               "help": "the weights (matrices, kernels and tables)"},
     "--bits": {"nargs": "+", "type": POSITIVE, "default": [8, 6, 4, 3, 2], "metavar": "N",
                "help": "the widths (8 6 4 3 2)"},
     "--per-channel": {"action": "store_true", "help": "a scale for each output channel"},
     "--curvature": {"choices": list(CURVATURES), "default": "gauss_newton",
                     "help": "the second order (gauss_newton)"},
     "--batch-size": BATCH_SIZE,
     "--measure": {"action": "store_true", "help": "run the model with each weight rounded, too"},
     "--budget": {"type": of_kind("a number like 4", parse_nonnegative), "metavar": "BITS",
                  "help": "allot widths for so many bits per number"},
     "--hessians": {"metavar": "OUT.npz", "type": path(".npz"),
                    "help": "write 2 X Xᵀ / n of each layer, which GPTQ takes"},
     "--html": {"metavar": "FILE.html", "type": HTML, "help": "the same as a page with a picture"},
     **output("OUT.onnx", "the model with weights rounded to --budget", required=False, kind=ONNX)},
    ("model.onnx --loss cross_entropy --input samples.npz",
     "model.onnx --loss cross_entropy axis=-1 --input samples.npz --batch-size 16 --per-channel "
     "--budget 4 -o rounded.onnx",
     "model_with_loss.onnx --of loss --at logits --curvature kfac --hessians gptq.npz --json"),
    {"loss": "the loss over the data, before any rounding",
     "weights": "a list with an object for each weight and width: name, operator, shape, bits, "
                "error, first and second (orders), cost (their sum), measured",
     "rank_correlation": "with --measure, of costs and measured changes",
     "allocation": "with --budget an object: bits by name, mean, bytes, cost",
     "hessians": "with --hessians the file that was written",
     "page": "with --html the page that was written", "file": "with -o the model"},
)  # fmt: skip
def run_sensitivities(args: Namespace, out: Output) -> str:
    """Predict what rounding each weight costs in the loss, and allot bits under a budget."""
    if args.output and args.budget is None:
        raise InputError("-o writes weights that are rounded to a budget: give --budget")
    at = model_at_point(args)
    found = sensitivities(
        at.model, at.point, of=args.of, at=args.at, wrt=args.wrt, bits=args.bits,
        per_channel=args.per_channel, curvature=args.curvature, batch_size=args.batch_size,
        engine=args.engine,
    )  # fmt: skip
    found = found.measured() if args.measure else found
    out.tell(str(found), **found.to_dict())
    if args.measure:
        out.tell("", rank_correlation=found.rank_correlation)
    if args.budget is not None:
        chosen = found.allocate(bits=args.budget)
        out.tell(str(chosen), allocation=asdict(chosen))
        if args.output:
            save(ir.to_proto(found.rounded(chosen.bits, args.model).ir), args.output)
            out.wrote(args.output, f"{chosen.mean:.2f} bits per number, as floating numbers")
    if args.hessians:
        found.save_hessians(args.hessians)
        out.tell(f"{args.hessians}: written", hessians=args.hessians)
    if args.html:
        found.view(Path(args.model).name).save(args.html)
        out.tell(f"{args.html}: written", page=args.html)
    return RIGHT


# -- explain ---------------------------------------------------------------------------------------

METHODS: dict[str, Callable[..., Attribution]] = {
    "saliency": saliency, "gradient-times-input": gradient_times_input, "smoothgrad": smoothgrad,
    "integrated-gradients": integrated_gradients, "grad-cam": grad_cam,
}  # fmt: skip


@command(
    {**{flag: about for flag, about in AT_POINT.items() if flag != "--of"},
     "--of": {"metavar": "NAME[0,3]",
              "help": "the entry to explain (of each sample the largest, or the next word)"},
     "--method": {"choices": list(METHODS), "default": "saliency", "help": "how (saliency)"},
     "--samples": {"type": POSITIVE, "default": 50, "metavar": "N",
                   "help": "of smoothgrad: how many noisy inputs (50)"},
     "--noise": {"type": of_kind("a number like 0.15", parse_nonnegative), "default": 0.15,
                 "metavar": "0.15", "help": "of smoothgrad: its share of the input's range (0.15)"},
     "--steps": {"type": POSITIVE, "default": 50, "metavar": "N",
                 "help": "of integrated-gradients: how many gradients (50)"},
     "--layer": {"metavar": "NAME", "help": "of grad-cam: which layer (the last image)"},
     "--words": {"metavar": "FILE.txt",
                 "help": "the vocabulary: line k, from 0 on, is the word of token k"},
     **output("OUT.html", "the page to write (the name of the model, with .explain.html, here); "
              "OUT.npz has the arrays", required=False, kind=path(".html", ".htm", ".npz"))},
    ("model.onnx --input image.npz", "model.onnx --input image.npz --of logits[0,3] "
     "--method integrated-gradients -o looks.html",
     "bert.onnx --input ids.npz --words vocabulary.txt --method gradient-times-input",
     "model.onnx --method grad-cam --layer relu_12 -o map.npz --json"),
    {"method": "its name", "of": "the entry that is explained", "values": "f, for each sample",
     "gap": "of integrated gradients: by how much the numbers of each sample miss the change of f",
     "maps": "an object: the shape of the map of each tensor, by name",
     "file": "the file that was written: a page, or the maps by name"},
)  # fmt: skip
def run_explain(args: Namespace, out: Output) -> str:
    """Show what an output looks at: the pixels, tokens or features that it depends on."""
    at = model_at_point(args)
    options: dict[str, Any] = {"of": args.of, "engine": args.engine}
    if args.method == "grad-cam":
        options["layer"] = args.layer
    else:
        options["wrt"] = args.wrt
    if args.method == "smoothgrad":
        options |= {"samples": args.samples, "noise": args.noise, "seed": args.seed}
    if args.method == "integrated-gradients":
        options["steps"] = args.steps
    found = METHODS[args.method](at.model, at.point, **options)
    tokens = set(embeddings_of(at.model).values())
    if args.method != "grad-cam" and args.wrt is None and tokens - found.maps.keys():
        out.warn(f"by the floating inputs; with --wrt {' '.join(sorted(tokens))} by the tokens")
    target = args.output or f"{Path(args.model).stem}.explain.html"
    if Path(target).suffix.lower() == ".npz":
        with drafts(target) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **found.maps)
    else:
        found.view(worded(at, found, args.words), Path(args.model).name).save(target)
    out.wrote(target, repr(found), **found.facts())
    return RIGHT


def worded(at: ModelAtPoint, found: Attribution, words: str | None) -> list[list[str]] | None:
    """The words of the tokens that an attribution explains; their numbers without a vocabulary."""
    made = {vectors: name for name, vectors in embeddings_of(at.model).items()}
    name = next((made[vectors] for vectors in found.maps if vectors in made), None)
    if name is None:
        return None
    try:
        known = Path(words).read_text("utf-8").splitlines() if words else []
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {words!r}: {error}") from error
    rows = np.asarray(at.point[name])
    return [[known[k] if 0 <= k < len(known) else str(k) for k in row.ravel()] for row in rows]


# -- jacobian, spectrum ----------------------------------------------------------------------------


@command(
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
def run_jacobian(args: Namespace, out: Output) -> str:
    """Write the Jacobian as a matrix, dense or sparse."""
    kind = Path(args.output).suffix.lower()
    if kind not in ("", ".npz", *((".csv",) if not args.sparse else ())):
        raise InputError(f"{args.output!r}: a {'sparse' if args.sparse else 'dense'} matrix is "
                         f"written as .npz{'' if args.sparse else ' or .csv'}")  # fmt: skip
    J = requested_jacobian(model_at_point(args), args)
    matrix: Any = J.tosparse() if args.sparse else J.toarray()
    matrix = matrix.astype(wide(J.dtype), copy=False)  # npz files have no bfloat16
    with drafts(args.output) as draft:
        if kind == ".csv":
            np.savetxt(draft, matrix, delimiter=",", fmt="%.17g" if matrix.itemsize > 4 else "%.9g")
        else:
            write_archive(
                draft,
                matrix,
                {**tensor_offsets("of", J.codomain), **tensor_offsets("wrt", J.domain)},
            )
    entries = int(matrix.nnz if args.sparse else matrix.size)
    out.wrote(args.output, f"{J}, {entries:,} entries", jacobian=report.jacobian_facts(J),
              sparse=args.sparse, entries=entries)  # fmt: skip
    return RIGHT


def tensor_offsets(side: str, specs: Specs) -> dict[str, np.ndarray]:
    """Names of the tensors, and their offsets: where each begins, and where the last ends."""
    ends = accumulate((size(shape_of(spec)) for spec in specs), initial=0)
    return {side: np.array([spec.name for spec in specs]), f"{side}_offsets": np.array([*ends])}


def write_archive(path: Path, matrix: Any, names: Mapping[str, np.ndarray]) -> None:
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
    {**AT_POINT,
     "--k": {"type": POSITIVE, "default": 10, "metavar": "N", "help": "how many (10)"},
     "--hessian": {"action": "store_true",
                   "help": "eigenvalues of the second derivative of --of, a scalar"},
     "--weights": {"type": of_kind("like 1,0,-2.5", parse_numbers), "metavar": "1,0,2",
                   "help": "with --hessian where --of has several entries: of their weighted sum, "
                           "by a weight for each, or one for all"}},
    ("model.onnx", "model.onnx --k 3 --wrt fc1.weight --of logits --json",
     "model_with_loss.onnx --hessian --of loss --wrt fc1.weight"),
    {"operator": "the operator, as a line of mathematics",
     "of": "singular values or eigenvalues",
     **report.SPECTRUM_KEYS},
)  # fmt: skip
def run_spectrum(args: Namespace, out: Output) -> str:
    """The largest singular values of a Jacobian, or eigenvalues of a Hessian."""
    if args.weights and not args.hessian:
        raise InputError("--weights goes with --hessian: singular values take no weights")
    at = model_at_point(args)
    A = hessian_at(at, args) if args.hessian else requested_jacobian(at, args)
    what = "eigenvalues" if args.hessian else "singular values"
    with counting(what, "products") as tick:
        found = largest_values(A, args.k, eigenvalues=args.hessian, seed=args.seed, tick=tick)
    out.tell(f"{A}\n{report.spectrum_text(found, what)}", operator=str(A), of=what, **asdict(found))
    return WRONG if found.why else RIGHT


def hessian_at(at: ModelAtPoint, args: Namespace) -> Jacobian:
    """H of the scalar that `--of` names, or of the sum of its entries by `--weights`."""
    of = names_of(at.model, args.of, at.model.outputs, "of")
    if len(of) != 1:
        raise InputError(f"a Hessian needs one tensor, not {list(of)}: name it with --of")
    shape = evaluate(at.model, at.point, of)[of[0]].shape
    weights, n = args.weights, size(shape)
    if weights is None and n != 1:
        raise InputError(f"a Hessian needs a function with one value, but {of[0]!r} has shape "
                         f"{list(shape)}: --weights 1 takes the sum of its entries")  # fmt: skip
    if weights is not None:
        if len(weights) not in (1, n):
            raise InputError(f"--weights has {len(weights)} numbers, but {of[0]!r} has shape "
                             f"{list(shape)}: {n} entries")  # fmt: skip
        weights = np.broadcast_to(weights, n).reshape(shape)
    return hessian(at.model, at.point, of=of[0], wrt=at.wrt, weights=weights, engine=args.engine)


# -- export, lower ---------------------------------------------------------------------------------


@command(
    {**AT_POINT, **output("OUT.onnx", kind=ONNX),
     "--mode": {"nargs": "+", "choices": list(MODES), "default": ["vjp"],
                "help": "which derivative, or several in one file (vjp)"},
     "--at": {"metavar": "NAME", "help": "of gauss_newton: the tensor before the loss"},
     "--tangents": {"type": number_or_name, "metavar": "K",
                    "help": "several tangents or cotangents at once: how many, or the name of a "
                            "free number"},
     "--vmap": {"nargs": "+", "metavar": "NAME",
                "help": "inputs that get a new first axis, for many points at once"},
     "--order": {"type": int, "metavar": "K", "help": "of jet: the highest derivative"},
     "--opset": {"type": int, "metavar": "N",
                 "help": "of the result, for a runtime that knows no newer one (21)"},
     "--guards": {"action": "store_true",
                  "help": "list where the result is right: conditions on sizes and numbers"}},
    ("model.onnx -o model_vjp.onnx", "model.onnx --mode vjp --wrt fc1.weight -o model_vjp.onnx",
     "model.onnx --mode jacobian --of logits -o model_jacobian.onnx",
     "model.onnx --mode value jvp --tangents 4 -o model_and_jvp.onnx"),
    {"file": "the file that was written",
     "nodes": "how many nodes the written model has",
     "inputs": "the names of its inputs",
     "outputs": "the names of its outputs",
     "guards": "where it is right: sizes and numbers that are fixed, and conditions on them"},
)  # fmt: skip
def run_export(args: Namespace, out: Output) -> str:
    """Write a derivative of a model as an ONNX model."""
    at = model_at_point(args)
    modes = args.mode if len(args.mode) > 1 else args.mode[0]
    made = export(at.model, modes, at.point, of=args.of, wrt=at.wrt, at=args.at,
                  tangents=args.tangents, vmap=args.vmap, engine=args.engine,
                  order=args.order, opset=args.opset)  # fmt: skip
    save(made, args.output)
    inputs, outputs = ([x.name for x in ends] for ends in (made.graph.input, made.graph.output))
    ends, nodes = f"({joined(inputs, ', ')}) ↦ ({joined(outputs, ', ')})", len(made.graph.node)
    held = where_right({entry.key: entry.value for entry in made.metadata_props})
    out.wrote(args.output, f"{ends}, {nodes} nodes", nodes=nodes, inputs=inputs, outputs=outputs,
              guards=held)  # fmt: skip
    if args.guards:
        out.tell("\n".join(["right where", *held]) if held else "right at every point")
        if any(spec.shape and isinstance(spec.shape[0], int) for spec in at.model.inputs.values()):
            out.tell("of the shapes that the file states; --dynamic-batch frees the batch")
    return RIGHT


@command(
    {**MODEL, **output("OUT.onnx", kind=ONNX)},
    ("with_gradients.onnx -o plain.onnx",),
    {"file": "the file that was written", "nodes": "how many nodes the written model has"},
)  # fmt: skip
def run_lower(args: Namespace, out: Output) -> str:
    """Replace the Gradient and optimiser nodes of a model by plain ones."""
    made = lower_gradients(args.model)
    save(made, args.output)
    nodes = len(made.graph.node)
    out.wrote(args.output, f"{nodes} nodes", nodes=nodes)
    return RIGHT


# -- prove, tags ----------------------------------------------------------------------------------


@command(
    {"name": {"metavar": "OPERATOR", "help": "Tanh, or ai.onnx.ml::Scaler"},
     "--full": {"action": "store_true", "help": "every case, step and condition"}},
    ("Tanh", "ai.onnx.ml::Scaler", "LSTM --full", "Softmax --json"),
    {"operator": "its name, with the domain where that is not ONNX's own",
     "verdict": "right, wrong, or not compared",
     "outcome": "the worst of all cases: exact, 30 or 14 digits, refuted; or zero, estimator",
     "cases": "a list of objects: case, source of the definition, outcome, proved",
     "markdown": "the proof as a page"},
)  # fmt: skip
def run_prove(args: Namespace, out: Output) -> str:
    """Prove by SymPy that the derivative of an operator is right."""
    domain, _, op_type = args.name.rpartition("::")
    proof = prove(op_type, domain)
    cases = [{"case": str(r.case), "source": r.source, "outcome": r.outcome, "proved": bool(r)}
             for r in proof.results]  # fmt: skip
    text = proof.markdown(full=args.full)
    out.tell(text, operator=proof.title, verdict=proof.verdict, outcome=proof.outcome, cases=cases,
             markdown=text)  # fmt: skip
    return proof.verdict


@command(
    {"--op": {"metavar": "NAME", "help": "one operator (all of them)"},
     "--format": {"choices": ["md", "csv"], "default": "md", "help": "of the table (md)"}},
    ("--op Clip", "--format csv > tags.csv", "--op Softmax --json"),
    {"tags": "a list with an object for each port: operator, port, ONNX's tag, verdict, evidence"},
)  # fmt: skip
def run_tags(args: Namespace, out: Output) -> str:
    """Compare ONNX's tags of differentiability with what is proved."""
    found = tags(args.op)
    text = found.csv() if args.format == "csv" else found.markdown()
    out.tell(text, tags=found.records())
    return RIGHT


STYLE: dict[str, Any] = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}

FILES = frozenset({"model", "twin", "input", "output", "html", "words", "hessians"})
"""Arguments that are paths of files."""


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (try {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As in argparse, but write errors are raised, not ignored."""
        (file or sys.stderr).write(message)


def parser(version: str) -> Parser:
    """The parser of the command line."""
    examples = "\n".join(f"  onnxjac {c.name} {c.examples[0]}" for c in COMMANDS)
    epilog = f"examples, more of them in the help of each command:\n{examples}\n\n{STATUS}"
    about = "The derivative of an ONNX model, as an operator."
    top = Parser("onnxjac", description=about, epilog=epilog, **STYLE)
    top.add_argument("--version", action="version", version=f"onnxjac {version}")
    files = completion(top)
    made = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        about = command.about[:1].lower() + command.about[1:-1]
        one = made.add_parser(
            command.name, help=about, description=command.about, epilog=command.epilog, **STYLE
        )
        one._negative_number_matcher = re.compile(r"-\.?\d")  # -1,0 is a value, no option
        for flags, options in {**command.options, **TALK}.items():
            argument = one.add_argument(*flags.split(), **options)
            if argument.dest in FILES:
                argument.complete = files  # type: ignore[attr-defined]
        one.set_defaults(command=command, parser=one, flags=tuple(one._option_string_actions))
    return top


def completion(top: Parser) -> Any:
    """Add `--print-completion bash`; what completes paths of files, or None without shtab."""
    flag = "--print-completion"
    about = "print a script that completes for this shell: `eval` it, or keep it in a file"
    try:
        import shtab
    except ImportError:
        lacking = "onnxjac: error: completion needs shtab: `pip install 'onnxjac[completion]'`\n"
        top.add_argument(flag, metavar="SHELL", type=lambda _: top.exit(1, lacking), help=about)
        return None
    shtab.add_argument_to(top, flag, about)
    return shtab.FILE
