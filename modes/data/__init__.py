"""Data: operators over batches, of which only one at a time is linearised.

`batches` says what counts as data, `stream` has the operators of one batch after the other, added
(`Streamed`) or stacked (`Stacked`). `streaming` makes them of data in this process, `cluster` over
the workers of a client, and `adapter` lets a function of a point take data for the point:

| function | how the batches are composed | whose reduction it is |
|---|---|---|
| `linearize` | one below the other | none: every batch has its own rows |
| `hessian`, `gauss_newton` | sum or mean | of the model's loss, which the caller states |
| `fisher` | sum or mean | of its option `reduction` |
| `empirical_fisher` | sum or mean | of its option `reduction`, which is also the loss's |
| `gram` | sum | none: JᵀJ is a sum over rows |

What is not a sum over samples is not composed of batches. An NTK couples all pairs of samples, so
it is `J @ J.T` with the stacked J of `linearize`, its rows sorted by tensors (`by_tensor`). The
factors of K-FAC are sums, but their product is not, so `kfac` adds up the factors themselves.
"""
