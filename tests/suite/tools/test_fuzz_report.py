"""The page of results: a new line for each run, and its findings above earlier ones."""

from fuzz.report import Tally
from fuzz.trial import Verdict


def run(seed, *texts):
    """A run with one result and some findings."""
    tally = Tally(seed)
    tally.add(seed, Verdict("result"))
    for text in texts:
        tally.add(seed, Verdict("finding", text))
    return tally


def test_each_run_adds_to_the_page(tmp_path):
    page = tmp_path / "fuzz.md"
    run(1, "hang").write(page, 60)
    page.write_text(page.read_text().replace("\n## ", "\nIn words.\n\n## "))
    run(2).write(page, 120)
    run(3, "crash").write(page, 60)
    lines = page.read_text().splitlines()
    end = lines.index("In words.")
    assert [line.split("|")[3].strip() for line in lines[end - 4 : end - 1]] == ["1", "2", "3"]
    assert lines[end + 1 :] == [
        "", "## Seed 3, from trial 3", "", "- 1 × crash",
        "", "## Seed 1, from trial 1", "", "- 1 × hang",
    ]  # fmt: skip
