/* Tables of halves from noisy counts of three types. */
#include "_release.h"
#include "inputs.h"

enum { N_ROWS = 200, N_COLUMNS = 37, PADDED = 48 };

static void release(int set, int kind) {
    const size_t n = N_ROWS * N_COLUMNS;
    int32_t *narrow = zeros(n, sizeof *narrow);
    int64_t *wide = zeros(n, sizeof *wide);
    double *real = zeros(n, sizeof *real);
    for (size_t i = 0; i < n; i++) {
        wide[i] = (int64_t)(1e6 * share()) - 2000;
        narrow[i] = (int32_t)wide[i];
        real[i] = 1.5 * (double)wide[i];
    }
    const void *counts = kind == DPLDA_INT32 ? (void *)narrow : kind == DPLDA_INT64 ? (void *)wide
                                                                                    : (void *)real;
    const dplda_weight weight = {0.37f, 1.25f, 50000.0f};
    float sums[PADDED] = {0}, largest[PADDED] = {0}, scale[PADDED], low[PADDED], high[PADDED];
    uint16_t *half = zeros(N_ROWS * PADDED, sizeof *half);
    dplda_add_weights(set, counts, kind, N_ROWS, N_COLUMNS, weight, sums, largest);
    for (int k = 0; k < PADDED; k++) {
        scale[k] = k < N_COLUMNS ? 60000.0f / largest[k] : 0.0f;
        low[k] = 0.01f;
        high[k] = 65504.0f;
    }
    dplda_write_halves(set, counts, kind, N_ROWS, N_COLUMNS, weight, scale, low, high, half, PADDED);
    add_to_digest(sums, N_COLUMNS * sizeof *sums);
    add_to_digest(largest, N_COLUMNS * sizeof *largest);
    add_to_digest(half, N_ROWS * PADDED * sizeof *half);
    free(narrow), free(wide), free(real), free(half);
}

void run(int set) {
    release(set, DPLDA_INT32);
    release(set, DPLDA_INT64);
    release(set, DPLDA_FLOAT64);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
