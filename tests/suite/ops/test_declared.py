"""Every rule and kernel is registered, and records are immutable."""

import importlib
import inspect
import pkgutil
from dataclasses import is_dataclass

import pytest
from onnx import defs

from onnxjac.jacobians.progress import Counter
from onnxjac.ops import Step
from onnxjac.ops.numbers.table import KERNELS
from onnxjac.ops.numbers.windows import Windows
from onnxjac.ops.registry import DECLARATIONS


def own(name, wanted):
    """The objects of one kind that a package and its submodules define."""
    package = importlib.import_module(name)
    found = pkgutil.walk_packages(package.__path__, f"{name}.")
    modules = [package]
    for module in found:
        try:
            modules.append(importlib.import_module(module.name))
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "jax"):  # extras
                raise
    return [x for module in modules for x in vars(module).values()
            if wanted(x) and x.__module__ == module.__name__]  # fmt: skip


def is_rule(x):
    """Whether this is a function `rule(op, node) -> Blocks`."""
    if not inspect.isfunction(x) or x.__annotations__.get("return") != "Blocks":
        return False
    return list(inspect.signature(x).parameters) == ["op", "node"]


def test_every_rule_is_declared():
    """Those that are functions; a formula or lines of index notation are declared as they are."""
    written = own("onnxjac.ops.rules", is_rule)
    declared = {inspect.unwrap(declaration.rule) for declaration in DECLARATIONS.values()}
    assert len(written) > 25
    assert not [f"{f.__module__}.{f.__name__}" for f in written if f not in declared]


def test_every_kernel_is_in_the_table():
    functions = own("onnxjac.ops.numbers", inspect.isfunction)
    written = {function.__name__.replace("_", "") for function in functions}
    operators = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
    assert len({name.lower() for name in KERNELS} & written) > 50
    missing = [name for name in operators - KERNELS.keys() if name.lower() in written]
    assert missing == []


@pytest.mark.parametrize("package", ["onnxjac.jacobians", "onnxjac.ops"])
def test_records_are_frozen(package):
    records = [kind for kind in own(package, inspect.isclass) if is_dataclass(kind)]
    assert records
    assert not [k for k in records if not k.__dataclass_params__.frozen and k is not Counter]


@pytest.mark.parametrize("kind", [Step, Windows])
def test_records_of_which_there_are_many_are_small(kind):
    assert "__dict__" not in dir(kind)
