"""Report: a model at a point and its Jacobian, section by section, for people and machines."""

from __future__ import annotations

import math
import shlex
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from ...jacobians import Shape
from ...jacobians.errors import InputError, OnnxJacError, UnknownTensor, closest, first_line
from ...jacobians.text import bytes_text, time_text
from ..embeddings import default_wrt
from ..linear.check import NOT_COMPARED, Check, staircase
from ..linear.derivatives.record import draws
from ..linear.explanation import Explanation
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..losses import with_loss
from ..model.flow.steps import Limits
from ..model.loading.load import load
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import HEAD, Names, arrays_in, check_inputs, is_float
from ..model.primal.model import Model, TensorSpec, as_model
from .blocks import memory_text, sign_meanings, structure_kind
from .spectra import Spectrum

NAMED_BLOCKS = 3
"""At most this many of the heaviest blocks, and of the zero blocks, are named."""

JACOBIAN_KEYS = "an object: text, shape, dtype, of, wrt (names), flops, bytes, dense_bytes"
CHECK_KEYS = "a list with an object for each test: name, error, tolerance, note, compared, passed"
SPECTRUM_KEYS = {
    "values": "the values, by magnitude",
    "products": "how many products with the operator or its transpose were taken",
    "why": "what went wrong where there are too few values, else empty",
}

KEYS = {
    "model": "an object: file, opset, nodes, ops (how many of each), numbers (in initializers)",
    "inputs": "a list with an object for each input: name, shape, dtype",
    "outputs": "a list with an object for each output: name, shape, dtype",
    "point": "a list with an object for each input: name, shape, dtype, given (else random)",
    "jacobian": JACOBIAN_KEYS,
    "explanation": "what J.explain().to_dict() gives: rows, one for each block, "
                   "stretches, choices, cuts, zeros, kinks",
    "check": CHECK_KEYS,
    "spectrum": "an object: values (singular values), products, why",
    "times": "an object: run, forward and reverse, seconds of the model, of J v and of Jᵀ u",
}
"""Keys of the report as data -> what they mean; times are in seconds, memory is in bytes."""


def section(title: str, lines: Iterable[str]) -> str:
    """A title in the margin, and lines beside it."""
    return f"{title:<12}" + f"\n{'':12}".join(lines)


# -- the model and the point -----------------------------------------------------------------------


def model_facts(
    model: Model, source: str, point: Mapping[str, Any], given: Collection[str]
) -> dict[str, Any]:
    """The model, its inputs and outputs, and the point."""
    ops = Counter(step.op_type for step in model.steps)
    numbers = sum(array.size for array in model.constants.values())
    return {
        "model": {"file": source, "opset": model.opset, "nodes": len(model.steps), "ops": ops,
                  "numbers": numbers},
        "inputs": [spec._asdict() for spec in model.inputs.values()],
        "outputs": [spec._asdict() for spec in model.outputs.values()],
        "point": [
            {"name": name, "shape": value.shape, "dtype": str(value.dtype), "given": name in given}
            for name, value in point.items() if isinstance(value, np.ndarray)
        ],
    }  # fmt: skip


def model_text(model: Model, facts: Mapping[str, Any]) -> str:
    """The facts of `model_facts` as text."""
    about = facts["model"]
    head = "opset {opset} as loaded, {nodes} nodes, {numbers:,} numbers in its initializers"
    points = (
        f"{x['name']} {x['dtype']}[{'×'.join(map(str, x['shape']))}], "
        f"{'given' if x['given'] else drawn_as(model.inputs[x['name']])}"
        for x in facts["point"]
    )
    drawn = Counter(step.op_type for step in model.steps if draws(step, model.constants))
    chance = [f"random: {', '.join(tally(drawn))}; J is of one sample"]
    ops = [*pack_lines(tally(about["ops"])), *(chance if drawn else [])]
    return "\n".join((
        section("model", [about["file"], head.format(**about), *ops]),
        section("inputs", map(str, model.inputs.values())),
        section("outputs", map(str, model.outputs.values())),
        section("point", points),
    ))  # fmt: skip


# -- the Jacobian ----------------------------------------------------------------------------------


def jacobian_text(J: Linearization, found: Explanation) -> str:
    """The shape of J, the kinds of its blocks, its heaviest blocks, its zeros, and its memory."""
    kinds = tally(Counter(structure_kind(row.structure) for row in found.rows))
    more = len(found.zeros) - NAMED_BLOCKS
    zeros = [*found.zeros[:NAMED_BLOCKS], *([f"and {more} more such pairs"] if more > 0 else [])]
    rows = sorted(found.rows, key=lambda row: (row.flops, row.nbytes), reverse=True)[:NAMED_BLOCKS]
    work = [f"{r.op} {r.structure}: {r.flops:,} flops, {bytes_text(r.nbytes)}" for r in rows]
    head = (section("jacobian", [str(J), f"{J.flops:,} flops in one product"]),
            section("structure", [f"{len(found.rows)} blocks", *pack_lines(kinds), *zeros]))
    if not found.rows:
        return "\n".join(head)
    return "\n".join((
        *head,
        section("signs", pack_lines(sign_meanings(r.structure for r in found.rows), sign="; ")),
        section("heaviest", work),
        section("memory", [memory_text(J), advice_on_memory(J)]),
    ))  # fmt: skip


def advice_on_memory(J: Linearization) -> str:
    """Which of the two to keep: the operator or its matrix."""
    dense = J.shape[0] * J.shape[1] * J.dtype.itemsize
    if dense <= J.nbytes:
        return "the matrix is smaller: J.toarray() forms it, where you need its entries"
    return f"the matrix would be {dense / max(J.nbytes, 1):,.3g} times as large: it is never formed"


def jacobian_facts(J: Linearization) -> dict[str, Any]:
    """Shape, names of tensors, flops and memory."""
    m, n = J.shape
    return {
        "text": str(J), "shape": J.shape, "dtype": str(J.dtype),
        "of": [spec.name for spec in J.codomain], "wrt": [spec.name for spec in J.domain],
        "flops": J.flops, "bytes": J.nbytes, "dense_bytes": m * n * J.dtype.itemsize,
    }  # fmt: skip


def tally(counts: Counter[str], most: int = 10) -> list[str]:
    """Different things with their counts, the most frequent first.

    >>> tally(Counter(["Conv", "Relu", "Conv"]))
    ['Conv 2', 'Relu 1']
    """
    rest = sum(n for _, n in counts.most_common()[most:])
    shown = [f"{thing} {n}" for thing, n in counts.most_common(most)]
    return shown + ([f"others {rest}"] if rest else [])


def pack_lines(items: list[str], width: int = 88, sign: str = ", ") -> list[str]:
    """Items separated by a sign, in lines of at most `width` characters.

    >>> pack_lines(["Conv 2", "Relu 1"]), pack_lines(["Conv 2", "Relu 1"], 8)
    (['Conv 2, Relu 1'], ['Conv 2,', 'Relu 1'])
    """
    unbroken = sign.join(item.replace(" ", "\0") for item in items)
    lines = wrap(unbroken, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


# -- check, singular values, times -----------------------------------------------------------------


def check_text(outcome: Check, verbose: bool) -> str:
    """One line, and every test that did not pass; all tests where the caller wants them."""
    least = np.finfo(float).tiny
    worst = max(outcome.outcomes, key=lambda test: test.error / max(test.tolerance, least))
    most = f"largest error {worst.error:.1e} of {worst.tolerance:.1e} allowed: {worst.name}"
    shown = [str(test) for test in outcome.outcomes if verbose or not test.passed]
    return section("check", [f"{outcome.summary}; {most}" if outcome else outcome.summary, *shown])


def next_text(args: Namespace, at: ModelAtPoint, J: Linearization, outcome: Check) -> str:
    """What to do next: what failed, a point of the caller's own, or further commands."""
    file = shlex.quote(args.model)
    if outcome.verdict == NOT_COMPARED or (not outcome and args.straight_through):
        estimate = [f"onnxjac report {file} --straight-through: past the roundings"]
        estimate *= not args.straight_through and bool(staircase(J))
        return section("next", ["the note at each test says what was not compared", *estimate])
    if not outcome and args.dtype != "float64":
        return section("next", [f"onnxjac check {file} --dtype float64: rounding, or an error?"])
    if not outcome:
        return section("next", ["look at the tests that did not pass; where J is wrong, report it"])
    steps = [f"onnxjac view {file}: the graph, with the blocks of J",
             f"onnxjac explain {file}: what an output looks at"]  # fmt: skip
    if not J.dag.edges:
        steps = ["--wrt NAME --of NAME: tensors between which there is a differentiable path"]
    if len(at.given) < len(at.point):
        steps.append("--input FILE.npz: the same at a point of your own, not at random")
        free = [spec.name for spec in at.model.inputs.values() if spec.name not in at.given
                and not all(isinstance(n, int) for n in (spec.shape or ())[1:])]
        steps += [f"--shape {name}={','.join(map(str, np.shape(at.point[name])))}: or another size"
                  for name in free[:1]]
    return section("next", steps)


def check_facts(outcome: Check) -> list[dict[str, Any]]:
    """The outcome of every test."""
    return [{**asdict(found), "passed": bool(found.passed)} for found in outcome.outcomes]


def spectrum_text(found: Spectrum, what: str = "singular values") -> str:
    """The largest values, and their cost."""
    values = "  ".join(f"{value:.5g}" for value in found.values) or "none"
    whose = "H" if what == "eigenvalues" else "J or Jᵀ"
    cost = f"{len(found.values)} largest, from {found.products} products with {whose}"
    return section(what.split()[0], [values, f"({cost})", *filter(None, [found.why])])


def timed(J: Linearization, seed: int) -> dict[str, float]:
    """Seconds of one run of the model, of J v and of Jᵀ u, with random vectors."""
    rng = np.random.default_rng(seed)
    v, u = (rng.standard_normal(n).astype(J.dtype) for n in J.shape[::-1])
    model, engine = J.route.model, J.route.engine
    return {
        "run": least_time(lambda: evaluate(model, J.point, model.outputs, engine=engine)),
        "forward": least_time(lambda: J @ v),
        "reverse": least_time(lambda: J.T @ u),
    }


def least_time(work: Callable[[], Any]) -> float:
    """Seconds that `work` takes: the least of 3 to 999 calls, in half a second if 3 are enough."""
    work()  # to warm up
    times: list[float] = []
    while len(times) < 3 or (len(times) < 999 and sum(times) < 0.5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def times_text(found: Mapping[str, float]) -> str:
    """How long a product takes, compared with one run of the model."""
    run, products = found["run"], {"J @ v": found["forward"], "Jᵀ @ u": found["reverse"]}
    lines = [f"{name}: {time_text(t)}, {t / run:.2g} runs" for name, t in products.items()]
    return section("time", [f"one run of the model: {time_text(run)}", *lines])


# -- the point of a command, with random inputs where none are given -------------------------------

Shapes = Mapping[str, Shape]
Draw = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class ModelAtPoint:
    """A model at a point; `given` is the part of the point that a file gave. `wrt` is what
    derivatives are by: `--wrt`, or the floating inputs (None), or the vectors of tokens.
    """

    model: Model
    point: dict[str, Any]
    given: dict[str, Any]
    wrt: Names


def model_at(path: str, args: Namespace) -> Model:
    """A model, with what a command asks of it: its loss, the parts of tensors that are named."""
    model = load(path, dtype=args.dtype, straight_through=args.straight_through,
                 dynamic_batch=args.dynamic_batch)  # fmt: skip
    if args.loss:
        kind, options = args.loss
        try:
            model = with_loss(model, kind, **options)
        except InputError as error:
            raise type(error)(f"--loss: {error}") from error
    found: Model = as_model(model, args.of, wrt=args.wrt)
    return found


def model_at_point(args: Namespace) -> ModelAtPoint:
    """The model of a command, at its `--input`, and at random values for other inputs."""
    model = model_at(args.model, args)
    given = arrays_in(args.input) if args.input else {}

    def draw(first: int, inner: int, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        drawn = draw_inputs(
            model, given, dict(args.shape), args.seed, first=first, inner=inner, sizes=sizes
        )
        return check_inputs(model, drawn)

    wrt = default_wrt(model) if args.wrt is None else args.wrt
    point = find_fitting_point(model, with_target(model, draw, args.engine), args.engine)
    return ModelAtPoint(model, point, given, wrt)


def with_target(model: Model, draw: Draw, engine: str | None) -> Draw:
    """`draw`, where the target of a loss has the sizes of the tensor that the loss is of.

    Exporters name the open sizes of an output anew, so that no input tells them.
    """
    name = model.ir.metadata_props.get(HEAD, "")
    head = model.spec(name).shape or () if name else ()
    where = [{d for d in spec.shape or () if isinstance(d, str)} for spec in model.inputs.values()]
    if not any(sum(dim in dims for dims in where) == 1 for dim in head):
        return draw

    def drawn(first: int, inner: int, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        point = draw(first, inner, sizes)
        try:
            made = np.shape(evaluate(model, point, [name], engine=engine)[name])
        except OnnxJacError:
            return point  # it fails without the loss as well
        told = {d: n for d, n in zip(head, made, strict=True) if isinstance(d, str)}
        return draw(first, inner, {**(sizes or {}), **told})

    return drawn


SIZES = (1, 8, 32, 64, 128, 224)
"""Sizes that are tried for axes whose size a model leaves open: first with 1 sample, then for all
of these axes.
"""


def find_fitting_point(model: Model, draw: Draw, engine: str | None) -> dict[str, Any]:
    """The first point of growing sizes at which the model runs, as convolutions ask for some.

    In between, each size that has a name is tried twice as large as all others: the mask of a
    decoder covers as many tokens as its cache and its input together.
    Raises `InputError`, naming the sizes that were tried, where it runs at none.
    """
    least, other = draw(SIZES[0], SIZES[0]), draw(SIZES[1], SIZES[1])
    names = [n for n, x in least.items() if np.shape(x) != np.shape(other[n])]
    if not names:  # the model, or the caller, states all sizes
        return least
    failed = None
    named = {n: model.inputs[n].shape or () for n in names}
    symbols = dict.fromkeys(dim for shape in named.values() for dim in shape[1:])
    doubled = [(1, 1, {dim: 2}) for dim in symbols if isinstance(dim, str)]
    trials = (*((1, n, {}) for n in SIZES), *doubled, *((n, n, {}) for n in SIZES[1:]))
    for first, inner, sizes in trials:
        point = draw(first, inner, sizes)
        try:
            made = evaluate(model, point, model.outputs, engine=engine)
            if all(np.size(y) for y in made.values()):
                return point
        except OnnxJacError as error:
            failed = failed or first_line(error)
    if all(np.shape(x) == np.shape(least[n]) for n, x in draw(SIZES[0], SIZES[1]).items()):
        return least  # what follows says better why it fails for one sample
    met: set[str] = set()
    needed = []
    for name, shape in named.items():  # other inputs have the same sizes
        needed += [name] * (not met.issuperset(d for d in shape if not isinstance(d, int)))
        met.update(dim for dim in shape if isinstance(dim, str))
    raise InputError(
        f"the model runs at none of the sizes {', '.join(map(str, SIZES))} for the axes that it "
        f"leaves open: give them, by --shape {' --shape '.join(f'{n}=...' for n in needed)}"
        f"; {failed or 'all outputs are empty'}"
    )


def requested_jacobian(at: ModelAtPoint, args: Namespace) -> Linearization:
    """J of `--of` by `--wrt`."""
    return linearize(at.model, at.point, of=args.of, wrt=at.wrt, engine=args.engine)


def draw_inputs(
    model: Model, given: Mapping[str, Any], shapes: Shapes | None = None, seed: int = 0, *,
    first: int = 1, inner: int = 1, sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The given inputs, and a random array for every other input of the model.

    Floats are standard normal. Integers are 0 or 1, so that an index stays in range; a mask has
    what it takes for nothing to be masked, see `drawn_as`. The size of a
    dimension that the model leaves open comes from `shapes`; failing that, from another input whose
    shape has the same symbol; failing that, from `sizes`; failing that, it is `first` for the first
    axis of an input, and wherever else its symbol stands, and `inner` for others.
    """
    shapes = shapes or {}
    for name in shapes:
        if name not in model.inputs:
            raise UnknownTensor(f"the model has no input {name!r}.{closest(name, model.inputs)}")
    known = {**shapes, **{name: np.shape(array) for name, array in given.items()}}
    leading = {spec.shape[0]: first for spec in model.inputs.values() if spec.shape}
    known_sizes = leading | dict(sizes or {}) | {
        dim: size for name, spec in model.inputs.items() if name in known
        for dim, size in zip(spec.shape or (), known[name], strict=False) if isinstance(dim, str)
    }  # fmt: skip
    rng = np.random.default_rng(seed)
    return dict(given) | {
        name: draw(spec, shapes.get(name), known_sizes, rng, model.limits, first, inner)
        for name, spec in model.inputs.items()
        if name not in given and spec.dtype is not None  # only tensors have a dtype
    }


MASKS = {"all ones": 1, "all zeros": 0}


def drawn_as(spec: TensorSpec) -> str:
    """How an input is drawn: at random; a mask of integers or booleans so that it masks nothing.

    Exporters' masks say where there are tokens, by ones, but a `key_padding_mask` where there are
    none. Rows that are masked from end to end have no derivative.

    >>> drawn_as(TensorSpec("attention_mask", (1, 8), np.dtype("int64")))
    'all ones'
    """
    name = spec.name.lower()
    if "mask" not in name or spec.dtype is None or is_float(spec.dtype):
        return "random"
    return "all zeros" if "pad" in name else "all ones"


def draw(
    spec: TensorSpec, shape: Shape | None, sizes: Mapping[str, int], rng: np.random.Generator,
    limits: Limits, first: int = 1, inner: int = 1,
) -> np.ndarray:  # fmt: skip
    """A random array for one input."""
    if shape is None:
        if spec.shape is None:
            raise InputError(f"the model does not say how many axes {spec.name!r} has: say it")
        shape = tuple(d if isinstance(d, int) else sizes.get(d or "", inner if axis else first)
                      for axis, d in enumerate(spec.shape))  # fmt: skip
    if any(size < 0 for size in shape):
        raise InputError(f"input {spec} has a negative size")
    limits.check("bytes", math.prod(max(n, 1) for n in shape) * 8, f"a random input {spec}")
    dtype = np.dtype(spec.dtype)
    if is_float(dtype):
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind in "iub" or "int" in dtype.name:  # the narrow integers of ml_dtypes are kind V
        bits = rng.integers(0, 2, shape)
        return np.full_like(bits, MASKS.get(drawn_as(spec), bits)).astype(dtype)
    raise InputError(f"no random {dtype} for input {spec.name!r}: give its values")
