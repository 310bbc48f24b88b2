"""Data: operators over batches, linearised one batch at a time.

`batches` defines what counts as data, and `stream` sums or stacks the operators of successive
batches. `shares` is the one way in which an operator over data is made, whoever holds the batches:
this process, the workers of a client (`cluster`), or all ranks of a `comm` that run the same script
(`ranks`). With `adapter` a function of a point takes data:

| function | composition of the batches | reduction |
|---|---|---|
| `linearize` | stacked | none: every batch has its own rows |
| `hessian`, `gauss_newton` | sum or mean | as in the model's loss, stated by the caller |
| `fisher` | sum or mean | its option `reduction` |
| `empirical_fisher` | sum or mean | its option `reduction`, which the loss has as well |
| `gram` | sum | none: JᵀJ is a sum over rows |

A mean over batches weighs each batch by what its own mean divides by: the number of samples or
terms, or Σ w where the loss has class weights, ignored labels or a mask.

A matrix that is not a sum over samples cannot be summed over batches. An NTK couples all pairs of
samples, so it is `J @ J.T` with the stacked J of `linearize`, its rows sorted by tensor. The
factors of K-FAC are sums, but their product is not, so `kfac` adds up the factors themselves.
"""
