"""Distributed: operators whose batches, and whose columns, are shared out over many processes.

`shares` is what a worker holds and does, `placement` says which worker does it, `operator` is the
`Jacobian` whose products are one map and one reduction, `over` makes it of data.

How cost grows, with W workers, P parts of the data (by default W), n columns and m rows of C, K
right-hand sides and s bytes for a number:

| | per product | |
|---|---|---|
| arithmetic | the time of one pass / W | where batches can be shared out evenly |
| right-hand sides | s n K W bytes | to every worker; the workers pass them on |
| results of a sum | s m K P bytes | added eight at a time, in log₈ P rounds |
| results of a stack | s m K bytes | every worker sends its own rows |
| tasks | P (1 + 1/7) | all pass through one scheduler |

Once: what `make` refers to, so model and point, to every worker, and data in memory with its part.
`tests/benchmarks/distributed.py` measures it, and predicts from that what 1,000 workers do.
"""
