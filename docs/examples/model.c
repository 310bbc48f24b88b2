/* An ONNX file as a function of arrays in C, by ONNX Runtime: inputs, then outputs, in the order of
   the file. All sizes are numbers; a free size counts as 1. Functions return 0, or NULL, on errors. */

#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16, RANK = 8 };

typedef struct {
    ONNXTensorElementDataType type;
    int64_t shape[RANK];
    size_t rank, bytes;
    char *name;
} Tensor;

typedef struct {
    OrtSession *session;
    size_t inputs, outputs;
    Tensor tensors[MOST];
} Model;

static const OrtApi *ort;

static int failed(OrtStatus *status) {
    if (!status) return 0;
    fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
    ort->ReleaseStatus(status);
    return 1;
}

static size_t width(ONNXTensorElementDataType type) {
    switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return 8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return 4;
    default: return 0;
    }
}

static int describe(const Model *model, size_t k, Tensor *tensor) {
    OrtAllocator *memory;
    OrtTypeInfo *info;
    const OrtTensorTypeAndShapeInfo *kind;
    int input = k < model->inputs;
    size_t at = input ? k : k - model->inputs;
    if (failed(ort->GetAllocatorWithDefaultOptions(&memory))) return 0;
    if (failed(input ? ort->SessionGetInputName(model->session, at, memory, &tensor->name)
                     : ort->SessionGetOutputName(model->session, at, memory, &tensor->name))) return 0;
    if (failed(input ? ort->SessionGetInputTypeInfo(model->session, at, &info)
                     : ort->SessionGetOutputTypeInfo(model->session, at, &info))) return 0;
    if (failed(ort->CastTypeInfoToTensorInfo(info, &kind)) || !kind) return 0;
    if (failed(ort->GetTensorElementType(kind, &tensor->type))) return 0;
    if (failed(ort->GetDimensionsCount(kind, &tensor->rank)) || tensor->rank > RANK) return 0;
    if (failed(ort->GetDimensions(kind, tensor->shape, tensor->rank))) return 0;
    tensor->bytes = width(tensor->type);
    for (size_t axis = 0; axis < tensor->rank; axis++) {
        if (tensor->shape[axis] < 1) tensor->shape[axis] = 1;
        tensor->bytes *= (size_t)tensor->shape[axis];
    }
    ort->ReleaseTypeInfo(info);
    return tensor->bytes > 0;
}

Model *model_open(const char *path) {
    static OrtEnv *env;
    OrtSessionOptions *options;
    Model *model = calloc(1, sizeof *model);
    ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    if (!model || !ort) return NULL;
    if (!env && failed(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "onnxjac", &env))) return NULL;
    if (failed(ort->CreateSessionOptions(&options))) return NULL;
    if (failed(ort->CreateSession(env, path, options, &model->session))) return NULL;
    ort->ReleaseSessionOptions(options);
    if (failed(ort->SessionGetInputCount(model->session, &model->inputs))) return NULL;
    if (failed(ort->SessionGetOutputCount(model->session, &model->outputs))) return NULL;
    if (model->inputs + model->outputs > MOST) return NULL;
    for (size_t k = 0; k < model->inputs + model->outputs; k++)
        if (!describe(model, k, &model->tensors[k])) return NULL;
    return model;
}

/* arrays: first the inputs, then the outputs, which are written in place */
int model_run(Model *model, void *const arrays[]) {
    OrtMemoryInfo *memory;
    OrtValue *values[MOST] = {0};
    const char *names[MOST];
    size_t count = model->inputs + model->outputs, k;
    int bad = failed(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (k = 0; k < count && !bad; k++) {
        Tensor *tensor = &model->tensors[k];
        names[k] = tensor->name;
        bad = failed(ort->CreateTensorWithDataAsOrtValue(memory, arrays[k], tensor->bytes,
            tensor->shape, tensor->rank, tensor->type, &values[k]));
    }
    if (!bad) {
        bad = failed(ort->Run(model->session, NULL, names, (const OrtValue *const *)values,
            model->inputs, names + model->inputs, model->outputs, values + model->inputs));
        ort->ReleaseMemoryInfo(memory);
    }
    for (k = 0; k < count; k++) if (values[k]) ort->ReleaseValue(values[k]);
    return !bad;
}

void model_close(Model *model) {
    OrtAllocator *memory;
    if (!failed(ort->GetAllocatorWithDefaultOptions(&memory)))
        for (size_t k = 0; k < model->inputs + model->outputs; k++)
            memory->Free(memory, model->tensors[k].name);
    ort->ReleaseSession(model->session);
    free(model);
}
