/* The public side of a document-level round, without and with public shares. */
#include "_denoise.h"
#include "inputs.h"

enum {
    N_WORDS = 50,
    N_TOPICS = 37,
    PADDED = 48,
    N_CELLS = N_WORDS * N_TOPICS,
    STRIDE = 2,
    N_VECTORS = (N_WORDS * PADDED / 16 + STRIDE - 1) / STRIDE,
    N_CLASSES = 3
};

static void denoise(int set, int n_centers) {
    const int n_found = n_centers * DPLDA_FACTORS;
    double *average = zeros(N_CELLS, sizeof *average), added[N_WORDS], of_table[N_WORDS];
    double prior[DPLDA_MOST], expected[DPLDA_MOST];
    int64_t words[N_WORDS], *noisy = zeros(N_WORDS * PADDED, sizeof *noisy);
    float *likelihood = zeros(N_VECTORS * n_found * 16, sizeof *likelihood);
    float *table = zeros(N_CELLS, sizeof *table), *out = zeros(N_WORDS * PADDED, sizeof *out);
    float *shares_of_words = shares(N_WORDS * PADDED), *weights = shares(N_CLASSES * n_found);
    float rate[N_WORDS], scale[N_WORDS], sizes[PADDED] = {0}, gains[PADDED] = {0};
    float factors[DPLDA_FACTORS];
    uint8_t class_of[N_WORDS];
    for (int i = 0; i < N_CELLS; i++) {
        average[i] = 1e4 * share() - 400;
    }
    for (int i = 0; i < N_WORDS * PADDED; i++) {
        noisy[i] = below(1 << 20) - (1 << 19);
    }
    for (int v = 0; v < N_WORDS; v++) {
        words[v] = N_WORDS - 1 - v, class_of[v] = (uint8_t)below(N_CLASSES);
        scale[v] = (float)(100 + 100 * share()), rate[v] = (float)(0.1 * share()) / scale[v];
        added[v] = share() / 1000, of_table[v] = 1000 * share();
    }
    for (int k = 0; k < N_TOPICS; k++) {
        sizes[k] = (float)(1e5 * share()), gains[k] = (float)(1e5 * share());
    }
    for (int g = 0; g < DPLDA_FACTORS; g++) {
        factors[g] = g ? ldexpf(1, g - 7) : 0;
    }
    for (int i = 0; i < n_found; i++) {
        prior[i] = 1.0 / n_found;
    }
    const dplda_noisy_table t = {average, N_TOPICS, rate, scale, sizes, factors,
                                 n_centers == 2 ? shares_of_words : NULL, gains};
    dplda_likelihood(set, &t, words, N_VECTORS, STRIDE, likelihood);
    dplda_expectation(set, likelihood, N_VECTORS, n_centers, prior, expected);
    dplda_estimate(set, &t, 0, N_WORDS, weights, class_of, 1e-3f, table);
    add_to_digest(likelihood, N_VECTORS * n_found * 16 * sizeof *likelihood);
    add_to_digest(expected, n_found * sizeof *expected);
    add_to_digest(table, N_CELLS * sizeof *table);
    for (int centered = 0; centered < 2; centered++) {
        dplda_learn(set, noisy, PADDED, table, N_TOPICS, 1, N_WORDS, 0.75, added, of_table, centered,
                    average);
        dplda_shares(set, table, N_TOPICS, 0, N_WORDS, centered ? NULL : gains, PADDED, out);
        add_to_digest(average, N_CELLS * sizeof *average);
        add_to_digest(out, N_WORDS * PADDED * sizeof *out);
    }
    dplda_temper(set, table, N_CELLS, 0.7f);
    add_to_digest(table, N_CELLS * sizeof *table);
    free(average), free(noisy), free(likelihood), free(table), free(out);
    free(shares_of_words), free(weights);
}

void run(int set) {
    denoise(set, 1);
    denoise(set, 2);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
