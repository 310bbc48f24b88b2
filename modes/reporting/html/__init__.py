"""HTML: what notebooks show of models, operators and results.

No scripts, no style sheets, nothing from elsewhere: tables and `<details>`, whose colours are those
of the page, so that they are legible on light and dark ground and where styles are stripped.
"""

from . import operators, results  # noqa: F401  (each says how its kinds are shown)
