/* The public side of a document-level round, with one center for all words, and one for each. */
#include "_denoise.h"
#include "inputs.h"

enum {
    N_WORDS = 50,
    N_TOPICS = 37,
    PADDED = 48,
    N_CELLS = N_WORDS * N_TOPICS,
    N_NODES = DPLDA_EXPECTED * DPLDA_SEEN,
    STRIDE = 2
};

static void denoise(int set, int one_center) {
    double *average = zeros(N_CELLS, sizeof *average), added[N_WORDS], of_table[N_WORDS];
    int64_t *noisy = zeros(N_CELLS, sizeof *noisy), *learned = zeros(N_CELLS, sizeof *learned);
    int64_t *counts = zeros(N_NODES, sizeof *counts);
    float *table = zeros(N_CELLS, sizeof *table), *out = zeros(N_WORDS * PADDED, sizeof *out);
    float *center = shares(N_WORDS * PADDED), *means = shares(N_NODES);
    float rate[N_WORDS], scale[N_WORDS], gains[PADDED] = {0};
    for (int i = 0; i < N_CELLS; i++) {
        average[i] = 1e4 * share() - 400;
    }
    for (int i = 0; i < N_CELLS; i++) {
        noisy[i] = below(1 << 20) - (1 << 19);
    }
    for (int v = 0; v < N_WORDS; v++) {
        scale[v] = (float)(100 + 100 * share()), rate[v] = (float)(1000 * share()) / scale[v];
        added[v] = share() / 1000, of_table[v] = 1000 * share();
    }
    for (int k = 0; k < N_TOPICS; k++) {
        gains[k] = (float)(1e5 * share());
    }
    const dplda_noisy_table t = {average, N_TOPICS, rate, scale, center, one_center ? 0 : PADDED};
    dplda_count(set, &t, N_WORDS, STRIDE, counts);
    dplda_estimate(set, &t, 0, N_WORDS, means, 1e-3f, table);
    add_to_digest(counts, N_NODES * sizeof *counts);
    add_to_digest(table, N_CELLS * sizeof *table);
    for (int centered = 0; centered < 2; centered++) {
        memcpy(learned, noisy, N_CELLS * sizeof *learned);
        dplda_learn(set, learned, table, N_TOPICS, 1, N_WORDS, 0.75, added, of_table, centered,
                    average);
        dplda_shares(set, table, N_TOPICS, 0, N_WORDS, centered ? NULL : gains, PADDED, out);
        add_to_digest(learned, N_CELLS * sizeof *learned);
        add_to_digest(out, N_WORDS * PADDED * sizeof *out);
    }
    for (int n = 5; n < 30; n += 8) { /* of two parts of the average, the first one turned */
        double product[N_WORDS * 30] = {0};
        dplda_products(set, average, N_WORDS, 1, N_WORDS, average, N_TOPICS, n, product);
        add_to_digest(product, sizeof product);
    }
    dplda_temper(set, table, N_CELLS, 0.7f);
    add_to_digest(table, N_CELLS * sizeof *table);
    free(average), free(noisy), free(learned), free(counts), free(table), free(out), free(center), free(means);
}

void run(int set) {
    denoise(set, 1);
    denoise(set, 0);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
