"""The kept mutants: the line that each changes and the test that kills it are in the tree."""

from dataclasses import replace

import pytest

from mutation.short import kept, stale


@pytest.mark.parametrize("mutant", kept(), ids=lambda mutant: f"{mutant.path}-{mutant.line}")
def test_a_kept_mutant_has_its_line_and_its_killer(mutant):
    assert not stale(mutant)


@pytest.mark.parametrize("change", [
    {"old": "a line of no file"},
    {"killer": "tests/suite/test_of_no_file.py::test_derivatives"},
    {"killer": "tests/suite/test_docs.py::test_of_no_name[1]"},
    {"killer": "the process died"},
])  # fmt: skip
def test_a_mutant_without_its_line_or_killer_is_stale(change):
    assert stale(replace(kept()[0], **change))
