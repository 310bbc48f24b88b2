"""Data: operators over batches, of which only one at a time is linearised.

`batches` says what counts as data, `stream` makes the operator of one batch after the other,
`streamed` adds or stacks them, `deterministic` compares two passes.
"""
