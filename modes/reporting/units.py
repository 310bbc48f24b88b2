"""Units: amounts as people say them."""

from __future__ import annotations


def bytes_text(n: float) -> str:
    """Bytes as people say them.

    >>> bytes_text(640), bytes_text(165 * 2**10), bytes_text(3.5 * 2**40)
    ('640 B', '165.0 KiB', '3.5 TiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024 or unit == "TiB":
            return f"{n:.0f} B" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1024
    raise AssertionError


def time_text(seconds: float) -> str:
    """Seconds as people say them.

    >>> time_text(0.0000421), time_text(0.0123), time_text(3)
    ('42.1 µs', '12.3 ms', '3 s')
    """
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
