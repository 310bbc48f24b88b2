"""Agreement: the results of the contenders, all in one process and untimed."""

from __future__ import annotations

from typing import Any

from .contenders import contender
from .report import Outcome
from .rounds import begin
from .worker import prepared, reason
from .workloads import Workload, find


class Local:
    """A contender in this process, with the interface of a `Worker`."""

    def __init__(self, name: str, workload: Workload) -> None:
        self.name, self.workload = name, workload
        self.made: Any = None

    def ask(self, kind: str, product: str) -> Any:
        """The set-up of a product, or the reason why there is none."""
        try:
            self.made = self.made or contender(self.name)(self.workload)
            return prepared(self.made, product, 0)[1]
        except Exception as error:
            return reason(error)


def results(name: str, contenders: list[str]) -> list[Outcome]:
    """All products of one workload, each computed once by every contender."""
    workload = find(name)
    there = [Local(contender, workload) for contender in contenders]
    return [
        Outcome(name, product, workload.tolerance, [begin(one, product) for one in there], None)
        for product in workload.products
    ]
