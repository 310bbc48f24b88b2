"""Data: operators over batches, of which only one at a time is linearised.

`batches` says what counts as data, `stream` makes the operator of one batch after the other,
`streamed` adds and `stacked` stacks them, `deterministic` compares two passes; `over` puts these
together, and `taking` lets a function of a point take data for the point, here or over the workers
of a client:

| function | composed of batches | the reduction is that of |
|---|---|---|
| `linearize` | one below the other | none: every batch has its own rows |
| `hessian`, `gauss_newton` | sum or mean | the model's loss, which the caller states |
| `fisher` | sum or mean | its option `reduction` |
| `empirical_fisher` | sum or mean | its option `reduction`, which is also that of the loss |
| `gram` | sum | none: JᵀJ is a sum over rows |

What is not a sum over samples is not composed of batches: an NTK couples all pairs of samples, so
that it is `J @ J.T` with the stacked J of `linearize`, whose rows `rows` sorts by tensors; the
factors of K-FAC are sums, but their product is not, so that `kfac` pools the factors itself.
"""
