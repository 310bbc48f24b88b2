"""An FMU with derivatives: `python fmu.py net.onnx description.json` writes NAME.fmu here.

onnx2fmu makes an FMU of an ONNX file and a description of it in JSON, and asks a C function for
∂y/∂x where a simulator wants directional or adjoint derivatives. Here the file computes its
Jacobian too, by `oj.export`, and the function reads it, once for each new point.
"""

import json
import sys
from pathlib import Path
from string import Template

import numpy as np
import onnx
from onnx2fmu import app

import onnxjac as oj

HEADER = """
#define GET_PARTIAL_DERIVATIVE
#define INPUTS $inputs
#define OUTPUTS $outputs
"""

FIELDS = """
    int known;
    float at[INPUTS], J[OUTPUTS][INPUTS];
} ModelBuffers;"""

FUNCTION = Template("""
Status getPartialDerivative(
    ModelInstance *comp, ValueReference y, ValueReference x, double *slope
) {
    const char *ins[] = {$ins}, *outs[] = {$outs};
    const size_t counts[] = {$counts}, sizes[] = {$sizes};
    const OrtValue *given[] = {$given};
    OrtValue *found[$blocks] = {0};
    ModelBuffers *b = &comp->modelBuffers;
    float at[INPUTS], *block;
    if (x < 1 || x > INPUTS || y <= INPUTS || y > INPUTS + OUTPUTS) {
        logError(comp, "There is a derivative of outputs by inputs alone.");
        return Error;
    }
    for (size_t k = 0; k < INPUTS;) {
        double value;
        size_t index = 0;
        if (getFloat64(comp, (ValueReference)(k + 1), &value, 1, &index) != OK) return Error;
        at[k++] = (float)value;
    }
    if (!b->known || memcmp(at, b->at, sizeof at)) {
        if (calculateValues(comp) != OK) return Error;
        OrtStatus *status = comp->g_ort->Run(
            comp->session, NULL, ins, given, $n, outs, $blocks, found);
        if (status) {
            logError(comp, "%s", comp->g_ort->GetErrorMessage(status));
            comp->g_ort->ReleaseStatus(status);
            return Error;
        }
        for (size_t i = 0, k = 0, row = 0; i < $m; row += counts[i++])
            for (size_t j = 0, column = 0; j < $n; column += sizes[j++], k++) {
                if (comp->g_ort->GetTensorMutableData(found[k], (void **)&block)) return Error;
                for (size_t r = 0; r < counts[i]; r++)
                    memcpy(&b->J[row + r][column], block + r * sizes[j], sizes[j] * sizeof(float));
                comp->g_ort->ReleaseValue(found[k]);
            }
        memcpy(b->at, at, sizeof at);
        b->known = 1;
    }
    *slope = b->J[y - INPUTS - 1][x - 1];
    return OK;
}
""")
"""INPUTS numbers x have the references 1, 2 …, and OUTPUTS numbers y the next ones."""


def make_fmu(model_path, description_path, target="target", destination="."):
    """The FMU of a model without local variables, in the folder `destination`."""
    description = json.loads(Path(description_path).read_text())
    x, y = ([entry["name"] for entry in description[side]] for side in ("inputs", "outputs"))
    model = oj.load(model_path)
    sizes = {name: [n if isinstance(n, int) else 1 for n in spec.shape]
             for name, spec in model.inputs.items()}  # fmt: skip
    point = {name: np.ones(shape, np.float32) for name, shape in sizes.items()}
    whole = Path(f"{description['name']}_with_jacobian.onnx")
    onnx.save(oj.export(model, "jacobian", point, of=y, wrt=x), whole)
    app.generate(str(whole), str(description_path), target)
    add_derivatives(Path(target) / description["name"], model, point, x, y)
    app.compile(target, str(description_path), destination)


def add_derivatives(folder, model, point, x, y):
    """Patch what onnx2fmu generated."""
    sizes = [point[name].size for name in x]
    values = model.run(point)
    counts = [values[name].size for name in y]
    names = [f'"{o}_{w}_jacobian"' for o in y for w in x]
    config, source = folder / "config.h", folder / "model.c"
    text = config.read_text().replace("#define CO_SIMULATION", Template(HEADER).substitute(
        inputs=sum(sizes), outputs=sum(counts)) + "\n#define CO_SIMULATION")  # fmt: skip
    config.write_text(text.replace("} ModelBuffers;", FIELDS.lstrip("\n")))
    source.write_text(source.read_text() + FUNCTION.substitute(
        ins=", ".join(f'"{name}"' for name in x), outs=", ".join(names),
        counts=", ".join(map(str, counts)), sizes=", ".join(map(str, sizes)),
        given=", ".join(f"comp->modelBuffers.{name}_tensor" for name in x),
        blocks=len(names), m=len(y), n=len(x),
    ))  # fmt: skip
    for page in folder.glob("FMI*.xml"):
        plural = "s" if page.name == "FMI3.xml" else ""
        says = f'providesDirectionalDerivative{plural}="true"'
        says += ' providesAdjointDerivatives="true"' if plural else ""
        page.write_text(page.read_text().replace("<CoSimulation", f"<CoSimulation {says}"))


if __name__ == "__main__":
    make_fmu(*sys.argv[1:])
