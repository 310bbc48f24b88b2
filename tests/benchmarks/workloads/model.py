"""The ONNX model of a workload."""

import onnx_ir as ir

from ..readings import onnx as reading
from .workload import Workload

OUTPUT, LOSS = "logits", "loss"


def model_of(workload: Workload) -> ir.Model:
    """One graph input; the other tensors are initializers. With labels, the loss is an output."""
    graph, name = reading.Graph(), workload.input
    tensors = {
        key: (graph.input if key == name else graph.tensor)(array, key)
        for key, array in workload.tensors.items()
    }
    outputs = {OUTPUT: workload.forward(reading, tensors)}
    if workload.labels is not None:
        labels = graph.tensor(workload.labels, "labels")
        outputs[LOSS] = reading.cross_entropy(outputs[OUTPUT], labels)
    return graph.model([tensors[name]], outputs)
