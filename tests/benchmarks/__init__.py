"""Benchmarks: the cost of one product, ours compared with the best of the peers.

    python -m tests.benchmarks [--only NAME ...] [--rounds N] [--json FILE] [--markdown FILE]

A workload (`workloads/`) is one computation, written once and interpreted in ONNX, JAX and PyTorch
(`readings/`). A contender (`contenders/`) computes products with its derivative in its own process
(`worker`); rounds of all contenders are interleaved (`rounds`); `table` compares the results.
"""
