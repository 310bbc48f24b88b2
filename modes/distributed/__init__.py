"""Distributed: operators whose batches, and whose columns, are shared out over many processes.

`shares` is what a worker holds and does, `placement` says which worker does it, `operator` is the
`Jacobian` whose products are one map and one reduction, `over` makes it of data.

How cost grows, with W workers, P = W parts of the data, n columns of C, m rows, K right-hand sides
and item bytes s:

| | per product | remark |
|---|---|---|
| arithmetic | (time of one pass) / W | batches are shared out evenly |
| right-hand sides sent | s n K W | to every worker, in a tree: log₂ W rounds |
| results sent, a sum | s m K P | eight at a time, between workers; log₈ P rounds |
| results sent, a stack | s m K in all | each worker sends its own rows |
| tasks | P + P / 7 | each costs the scheduler about a millisecond |
| sent once | model, point, what `make` refers to | s · parameters · W, and the parts of data in memory |

`tests/benchmarks/distributed.py` measures these on the machine at hand and fits
T(W) = T₁ / W + t_task (P + P / 7) + ⌈log₂ W⌉ (t_latency + s n K / bandwidth) + …, which predicts W = 1,000.
"""
