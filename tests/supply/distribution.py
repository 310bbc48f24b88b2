"""Reproducible builds of the sdist and the wheel.

    python tests/supply/distribution.py FOLDER

builds both from a copy of the files that git knows, without network and without build isolation,
so that setuptools must be installed. Every file in them has the date `SOURCE_DATE_EPOCH`, by
default the date of the last commit.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
BUILD = (
    "import sys; from setuptools import build_meta as b; out = sys.argv[1]; "
    "b.build_sdist(out); b.build_wheel(out)"
)


def build(out: Path, epoch: int) -> tuple[Path, Path]:
    """The sdist and the wheel that were built into the folder `out`."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        copy(source)
        subprocess.run(
            [sys.executable, "-c", BUILD, str(out.resolve())],
            cwd=source, check=True, capture_output=True,
            env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
        )  # fmt: skip
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    repeat(sdist, epoch)
    return sdist, wheel


def copy(target: Path) -> None:
    """Copy the files of the tree that git does not ignore."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def repeat(sdist: Path, epoch: int) -> None:
    """Rewrite an sdist with sorted members, one date and no owner.

    Setuptools respects SOURCE_DATE_EPOCH in wheels; in an sdist it keeps the dates of the files it
    has just written, and gzip adds the current time.
    """
    with tarfile.open(sdist) as old:
        members = sorted(old.getmembers(), key=lambda member: member.name)
        files = [(plain(m, epoch), old.extractfile(m) if m.isfile() else None) for m in members]
        whole = sdist.with_suffix(".new")
        with (
            whole.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member, content in files:
                new.addfile(member, content)
    whole.replace(sdist)


def plain(member: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    """A member without properties of the machine: date, owner and umask."""
    bare = tarfile.TarInfo(member.name)
    bare.type, bare.size, bare.mtime = member.type, member.size, epoch
    bare.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return bare


def git(*words: str) -> str:
    """The output of a git command."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def epoch_of_commit() -> int:
    """The date of all files: `SOURCE_DATE_EPOCH`, or the last commit's."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def main() -> None:
    """Build into the folder that the command line names."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for path in build(out, epoch_of_commit()):
        print(path)


if __name__ == "__main__":
    main()
