"""Ways: where arrows run between points, straight or past what is between."""

from __future__ import annotations

from .layers import Link, Places


def passing(places: Places, link: Link) -> bool:
    """Whether a straight arrow would run through other points."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    return x0 == x1 and y1 > y0 + 1


def bulge(places: Places, link: Link) -> float:
    """How far to the left an arrow swings out."""
    return min(0.1 * (places[link.end][1] - places[link.start][1]), 0.6)


def along(places: Places, link: Link, t: float) -> tuple[float, float]:
    """The point of the arrow at t from 0 to 1."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    swing = 4 * t * (1 - t) * bulge(places, link) if passing(places, link) else 0.0
    return x0 + t * (x1 - x0) - swing, y0 + t * (y1 - y0)
