"""The result of an attribution: a number for every entry of the input, and pictures of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...jacobians import hooks, prod_text
from ...jacobians.errors import InputError
from ...jacobians.hooks import Shown
from ..model.markup import Page


@dataclass(frozen=True)
class Attribution(Shown):
    """A number for each entry of the tensors of `wrt`: how much it has to do with f.

    `maps` has an array of the shape of each tensor of `wrt`, by name, and `inputs` their values.
    `method` made them, `of` names f, `values` are fₙ, one for each sample. `signed` maps have a
    direction: they say what raises and what lowers f. `gap` is Σᵢ mapᵢ − (fₙ(x) − fₙ(x₀)) for each
    sample, where the method promises that the numbers add up, else None. `images` are inputs behind
    the map of a layer. A notebook shows pictures, and so does the page of `view`.
    """

    method: str
    of: str
    maps: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    values: np.ndarray
    signed: bool
    gap: Any = None
    images: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """How many samples the maps have along their first axis; 1 for a single one without it."""
        lengths = {len(x) for x in self.maps.values() if x.ndim > 1}
        return lengths.pop() if len(lengths) == 1 else 1

    def __getitem__(self, name: str) -> np.ndarray:
        """The map of a tensor of `wrt`."""
        if name not in self.maps:
            raise InputError(f"there is no map of {name!r}, only of {', '.join(self.maps)}")
        return self.maps[name]

    def picture(self, name: str | None = None, sample: int = 0) -> np.ndarray:
        """One number for each pixel, token or feature of one sample.

        The channels of a pixel and the coordinates of a token are added where the map is `signed`;
        else the largest channel counts, and the length of a token's vector.

        - `name`: a tensor of `wrt`, by default the first one.
        - `sample`: an index along the first axis.

        Shapes: (H, W) of images (N, C, H, W), (T,) of tokens (N, T, D), (F,) of rows (N, F). Raises
        `InputError` for a name or sample that does not exist.
        """
        map_ = self[next(iter(self.maps)) if name is None else name]
        rows = map_ if map_.ndim > 1 else map_[None]
        if not -len(rows) <= sample < len(rows):
            raise InputError(f"there is no sample {sample} among {len(rows)}")
        x = rows[sample]
        if x.ndim == 2:
            return x.sum(axis=-1) if self.signed else np.linalg.norm(x, axis=-1)
        if x.ndim > 2:
            return x.sum(axis=0) if self.signed else np.abs(x).max(axis=0)
        return x

    def view(self, tokens: Sequence[Sequence[str]] | None = None, title: str = "") -> Page:
        """The pictures as an HTML page that needs no other file: `save("looks.html")` writes it.

        - `tokens`: for each sample the words that its tokens are shown as.
        - `title`: what stands above it, such as the name of the file.
        """
        page: Page = hooks.view(self, tokens, title)
        return page

    def facts(self) -> dict[str, Any]:
        """What was computed, without the arrays."""
        return {
            "method": self.method, "of": self.of, "values": self.values, "gap": self.gap,
            "maps": {name: list(x.shape) for name, x in self.maps.items()},
        }  # fmt: skip

    def __repr__(self) -> str:
        maps = ", ".join(f"{name} {prod_text(x.shape)}" for name, x in self.maps.items())
        gap = "" if self.gap is None else f", completeness gap {np.abs(self.gap).max():.1e}"
        return f"{self.method} of {self.of} in ({maps}){gap}"


def like_inputs(maps: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The maps in the dtypes of the inputs."""
    return {name: np.asarray(x, inputs[name].dtype) for name, x in maps.items()}
