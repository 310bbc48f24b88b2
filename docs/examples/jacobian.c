/* The Jacobian of a network in C: J v for each unit vector, from a file of mode "jvp". */

#include <stdio.h>

typedef struct Model Model;
Model *model_open(const char *path);
int model_run(Model *model, void *const arrays[]);
void model_close(Model *model);

enum { INPUTS = 3, OUTPUTS = 2 };

int main(int count, char **arguments) {
    double x[INPUTS] = {0.3, -0.5, 0.7}, y[OUTPUTS], J[INPUTS][OUTPUTS];
    Model *model = count > 1 ? model_open(arguments[1]) : NULL;
    if (!model) return 1;
    for (int k = 0; k < INPUTS; k++) {
        double v[INPUTS] = {0};
        v[k] = 1;
        if (!model_run(model, (void *[]){x, v, y, J[k]})) return 1;
    }
    for (int i = 0; i < OUTPUTS; i++) {
        for (int k = 0; k < INPUTS; k++) printf("%.17g ", J[k][i]);
        printf("\n");
    }
    model_close(model);
    return 0;
}
