"""Waiting for what an operator prepares while it gives products."""


def settle(adaptive):
    """Wait for the background work of an `Adaptive`, and use its result."""
    if ahead := adaptive._ahead:
        ahead.wait()
        adaptive._take(ahead)
