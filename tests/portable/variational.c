/* Topic weights of documents, and the integers that documents contribute to a sum. */
#include "_variational.h"
#include "inputs.h"

enum { N_DOCS = 33, N_WORDS = 80, N_TOPICS = 20, PADDED = 32, MOST = 60, RADIUS = 1 << 20 };

static void fold_in_all(int set, int in_pairs, int accelerated, int variational) {
    float *phi = shares(N_WORDS * PADDED), scratch[6 * PADDED];
    float *pairs = zeros(N_WORDS * PADDED, sizeof *pairs);
    for (int i = 0; i < N_WORDS * PADDED; i++) {
        phi[i] *= i % PADDED < N_TOPICS;
    }
    for (int v = 0; v < N_WORDS; v++) {
        DPLDA_CALL(pack, set)(phi + v * PADDED, PADDED, pairs + v * dplda_pairs(PADDED));
    }
    add_to_digest(pairs, N_WORDS * PADDED * sizeof *pairs);
    for (int d = 0; d < N_DOCS; d++) {
        const int n = (int)below(MOST);
        int32_t word[MOST];
        float count[MOST], theta[PADDED] = {0};
        for (int j = 0; j < n; j++) {
            word[j] = (int32_t)below(N_WORDS);
            count[j] = (float)(1 + below(4));
        }
        for (int k = 0; k < N_TOPICS; k++) {
            theta[k] = 1.0f / N_TOPICS;
        }
        DPLDA_CALL(fold_in, set)
        (word, count, n, in_pairs ? pairs : phi, in_pairs, PADDED, 0.05f, N_TOPICS, 25, 1e-3f,
         accelerated, variational, theta, scratch);
        add_to_digest(theta, sizeof theta);
        if (in_pairs) {
            float rows[MOST * PADDED], inverse_size[PADDED] = {0};
            for (int k = 0; k < N_TOPICS; k++) {
                inverse_size[k] = 1.0f / (100 + 7 * k);
            }
            DPLDA_CALL(leave_out, set)
            (word, count, n, pairs, PADDED, theta, inverse_size, 0.01f, scratch, rows);
            add_to_digest(rows, n * dplda_pairs(PADDED) * sizeof *rows);
        }
    }
    free(phi), free(pairs);
}

/* Each word is in each document, in the order of the documents. */
static void contribute(int set) {
    float *theta = shares(N_DOCS * PADDED), *factor = shares(N_WORDS * PADDED);
    float *center = shares(N_WORDS * PADDED), *count = shares(N_WORDS * N_DOCS);
    float *weight = shares(N_WORDS), *part = zeros(N_WORDS * N_DOCS, sizeof *part);
    double square[N_DOCS] = {0};
    float scale[N_DOCS];
    int32_t doc[N_DOCS], cells[PADDED] = {0};
    int64_t total[N_TOPICS] = {0}, integers[N_DOCS] = {0};
    dplda_word word = {PADDED, theta, NULL, NULL};
    for (int v = 0; v < N_WORDS; v++) {
        for (int d = 0; d < N_DOCS; d++) {
            doc[d] = d;
        }
        word.factor = factor + v * PADDED, word.center = center + v * PADDED;
        DPLDA_CALL(measure_word, set)
        (&word, doc, count + v * N_DOCS, weight[v], N_DOCS, part + v * N_DOCS, square);
    }
    for (int d = 0; d < N_DOCS; d++) {
        scale[d] = d % 7 ? dplda_scale(sqrt(square[d]), 0.5, RADIUS) : 0;
    }
    for (int v = 0; v < N_WORDS; v++) {
        word.factor = factor + v * PADDED, word.center = center + v * PADDED;
        DPLDA_CALL(add_word, set)
        (&word, doc, count + v * N_DOCS, weight[v], N_DOCS, part + v * N_DOCS, scale, RADIUS, 1,
         N_TOPICS, total, cells, integers);
        add_to_digest(total, sizeof total);
    }
    add_to_digest(square, sizeof square);
    add_to_digest(integers, sizeof integers);
    free(theta), free(factor), free(center), free(count), free(weight), free(part);
}

void run(int set) {
    for (int in_pairs = 0; in_pairs < 2; in_pairs++) {
        fold_in_all(set, in_pairs, 0, 0);
        fold_in_all(set, in_pairs, 1, 0);
        fold_in_all(set, in_pairs, 1, 1);
    }
    contribute(set);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
