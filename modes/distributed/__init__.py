"""Distributed: operators whose batches, and whose columns, are shared out over many processes.

`shares` is what a worker holds and does, `placement` says which worker does it, `parts` are the
futures of that for all of the data. `operator` is the `Jacobian` whose products are one map and one
reduction (`grid`), and `over` makes it of data; `pools` are sums of Kronecker factors.

How cost grows, with W workers, P parts of the data (by default W), n columns and m rows of C, K
right-hand sides and s bytes for a number:

| | per product | |
|---|---|---|
| arithmetic | the time of one pass / W | where batches can be shared out evenly |
| right-hand sides | s n K W bytes | to every worker; the workers pass them on |
| results of a sum | s m K P bytes | added eight at a time, in log₈ P rounds |
| results of a stack | s m K bytes | every worker sends its own rows |
| tasks | P (1 + 1/7) | all pass through one scheduler |

A pass for Kronecker factors is a sum too: for a weight of i inputs and o outputs, of s (i² + o²)
bytes in place of s m K. For the eigenvalues of E-KFAC these go to every worker, and s i o return.

Once: what `make` refers to, so model and point, to every worker, and data in memory with its part.
`tests/benchmarks/distributed.py` measures it, and predicts from that what 1,000 workers do.
"""
