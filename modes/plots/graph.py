"""Graph: tensors as points, the operators between them as arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...jacobians import Dag, Jacobian
from ...jacobians.errors import InputError
from ..elimination.planned import eliminated
from ..hessian import Hessian
from ..linearization import Linearization
from ..tape.record import vertex_names
from .arrows import draw
from .canvas import WIDTH, axes, pyplot
from .drawing import Drawing, drawing_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_graph(J: Jacobian, *, after: bool = False, ax: Axes | None = None) -> Axes:
    """The DAG whose sweep is J: the tensors of `wrt` above, those of `of` at the bottom.

    Arrows are operators, the wider the more flops they take in a product. `after=True` draws what
    elimination leaves, with which products are taken. Up to 40 tensors have names; in
    larger graphs each run of operators without a branch is one arrow, and beyond 300 points what
    stands in neighbouring layers is taken together. J is of a model, a Hessian too; a
    transpose is drawn as what it is the transpose of.
    """
    J = of_model(J)
    dag = eliminated(J.dag) if after else J.dag
    drawing = drawn(J, dag)
    ax = axes(ax, drawing.height)
    draw(ax, drawing)
    tensors = len({v for edge in dag.edges for v in (edge.start, edge.end)})
    when = "after elimination" if after else "as declared"
    ax.set_title(f"{when}: {tensors:,} tensors, {len(dag.edges):,} operators", fontsize=9)
    return ax


def plot_elimination(J: Jacobian, *, axs: tuple[Axes, Axes] | None = None) -> tuple[Axes, Axes]:
    """The DAG before elimination and after it, side by side: see `plot_graph`."""
    J = of_model(J)
    height = max(drawn(J, dag).height for dag in (J.dag, eliminated(J.dag)))
    if axs is None:
        axs = pyplot().subplots(1, 2, figsize=(WIDTH, height), layout="constrained")[1]
    if not (hasattr(axs, "__len__") and len(axs) == 2):
        raise InputError(f"axs must be two Axes, as `plt.subplots(1, 2)[1]` has them, not {axs!r}")
    before, after = plot_graph(J, ax=axs[0]), plot_graph(J, after=True, ax=axs[1])
    after.set_ylim(before.get_ylim())
    return before, after


def of_model(J: Jacobian) -> Linearization:
    """The Jacobian that has a DAG and the names of its tensors."""
    J = J.J if isinstance(J, Hessian) else J
    if not isinstance(J, Linearization):
        raise InputError("a graph is drawn of the Jacobian or the Hessian of a model, not of "
                         f"{type(J).__name__}: it has no DAG with names; give what "
                         "`linearize` or `hessian` returned")  # fmt: skip
    if not J.dag.edges:
        raise InputError(f"nothing leads from wrt to of in {J!r}: there is no graph to draw")
    return J.T if J.transposed else J


def drawn(J: Linearization, dag: Dag) -> Drawing:
    """What is shown of one DAG of J."""
    wrt, of = (tuple(spec.name for spec in side) for side in (J.domain, J.codomain))
    return drawing_of(dag, vertex_names(J.entries, wrt, of))
