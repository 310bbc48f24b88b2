"""The operators in `jacobians/vocabulary.py`: `python -m tests.vocabulary` writes them from ONNX.

Rules may call what ONNX has at the working opset, since every recorded graph has that.
"""

import json
import keyword
import textwrap
from pathlib import Path

import numpy as np
import onnx.defs
import onnx.helper

PAGE = Path(__file__).resolve().parents[1] / "jacobians" / "vocabulary.py"

BEGIN = "    # -- written by `python -m tests.vocabulary` "

OPSET = 21

GLUE = "\xa0"
"""What stands for a space at which no line ends."""

Schema = onnx.defs.OpSchema
Option = Schema.FormalParameterOption

TYPES = {
    Schema.AttrType.FLOAT: "float",
    Schema.AttrType.FLOATS: "Sequence[float]",
    Schema.AttrType.INT: "int",
    Schema.AttrType.INTS: "Sequence[int]",
    Schema.AttrType.STRING: "str",
    Schema.AttrType.STRINGS: "Sequence[str]",
}
"""The types of attributes; graphs, tensors and types are objects."""


def schemas():
    """The operators of ONNX at the working opset, by name."""
    names = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    for name in sorted(names):
        try:
            schema = onnx.defs.get_schema(name, OPSET, "")
        except onnx.defs.SchemaError:  # newer
            continue
        if not schema.deprecated:
            yield schema


def signature(schema):
    """An operator as a method."""
    parts = ["self", *operands(schema), *attributes(schema)]
    head, end = f"def {schema.name}(", f") -> {result(schema)}: ..."
    line = f"    {head}{', '.join(parts)}{end}"
    if len(line) <= 100:
        return line
    whole = ", ".join(part.replace(" ", GLUE) for part in parts)
    filled = textwrap.fill(f"{whole},", 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return f"    {head}\n{filled.replace(GLUE, ' ')}\n    {end}  # fmt: skip"


def operands(schema):
    """The inputs by position; the last one may be any number of them."""
    plain = [x for x in schema.inputs if x.option != Option.Variadic]
    for x in plain:
        yield f"{named(x.name)}: Array" + " | None = None" * (x.option == Option.Optional)
    if plain:
        yield "/"
    for x in schema.inputs[len(plain) :]:
        yield f"*{named(x.name)}: Array"


def attributes(schema):
    """The attributes by keyword, with their defaults, and the number of outputs."""
    variadic = any(x.option == Option.Variadic for x in schema.inputs)
    found = sorted(schema.attributes.values(), key=lambda a: (not a.required, a.name))
    told = [attribute(a) for a in found]
    if max_outputs(schema) > 1:
        told.append(f"outputs: int = {max(schema.min_output, 1)}")
    return told if variadic or not told else ["*", *told]


def attribute(a):
    kind = TYPES.get(a.type, "object")
    if a.required:
        return f"{named(a.name)}: {kind}"
    if not a.default_value.type:
        return f"{named(a.name)}: {kind} | None = None"
    value = onnx.helper.get_attribute_value(a.default_value)
    if isinstance(value, bytes):
        value = value.decode()
    elif isinstance(value, list):
        value = [v.decode() if isinstance(v, bytes) else v for v in value]
    elif isinstance(value, float):
        value = float(str(np.float32(value)))  # 0.01, which ONNX stores as 0.009999999776482582
    return f"{named(a.name)}: {kind} = {json.dumps(value, ensure_ascii=False)}"


def max_outputs(schema):
    """The most outputs, 2 for any number."""
    return 2 if any(y.option == Option.Variadic for y in schema.outputs) else schema.max_output


def result(schema):
    """One array, several, or what `outputs` tells."""
    several = schema.min_output > 1 or schema.outputs[0].option == Option.Variadic
    return "tuple[Array, ...]" if several else "Array"


def named(name):
    """A name, with an underscore where Python or a reader would take it for something else."""
    return f"{name}_" if keyword.iskeyword(name) or name in ("I", "O", "l") else name


def written(text):
    """The page with its operators written again."""
    head, begin, _ = text.partition(BEGIN)
    assert begin
    rule = f"{BEGIN}{'-' * (100 - len(BEGIN))}"
    return "\n\n".join((f"{head}{rule}", *map(signature, schemas()))) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
