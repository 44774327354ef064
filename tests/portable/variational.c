/* Topic weights of documents, and the integers that documents contribute to a sum. */
#include "_variational.h"
#include "inputs.h"

enum { N_DOCS = 33, N_WORDS = 80, N_TOPICS = 20, PADDED = 32, MOST = 60 };

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

static int16_t *narrowed(int set, const float *table, int n_rows, int is_relative) {
    int16_t *rows = zeros(n_rows * PADDED, sizeof *rows);
    for (int i = 0; i < n_rows; i++) {
        const float *row = table + i * PADDED;
        const float factor = is_relative ? DPLDA_CALL(relative, set)(row, PADDED) : 32767;
        DPLDA_CALL(narrow, set)(row, 0, PADDED, factor, PADDED, rows + i * PADDED);
    }
    return rows;
}

/* Each word is in each document; every fifth one has the unit of the one before. */
static void contribute(int set) {
    float *floats = shares((N_DOCS + 2 * N_WORDS) * PADDED), *count = shares(N_WORDS * N_DOCS);
    float *weight = shares(N_WORDS), squares[N_DOCS], products[N_DOCS], scale[N_DOCS];
    int16_t *theta = narrowed(set, floats, N_DOCS, 1);
    int16_t *factor = narrowed(set, floats + N_DOCS * PADDED, N_WORDS, 1), *center;
    double length[N_DOCS] = {0};
    int32_t doc[N_DOCS], unit[N_DOCS], *sum = zeros(N_WORDS * N_DOCS, sizeof *sum);
    int64_t total[N_TOPICS] = {0}, integers[N_DOCS] = {0};
    dplda_sum to = {scale, 3, 1, total, N_TOPICS, integers};
    for (int i = 0; i < N_WORDS * PADDED; i++) {
        floats[(N_DOCS + N_WORDS) * PADDED + i] /= PADDED;
    }
    center = narrowed(set, floats + (N_DOCS + N_WORDS) * PADDED, N_WORDS, 0);
    for (int d = 0; d < N_DOCS; d++) {
        doc[d] = d, unit[d] = d % 5 == 1 ? d - 1 : d;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int v = 0; v < N_WORDS; v++) {
            const int16_t *f = factor + v * PADDED, *c = center + v * PADDED;
            const dplda_word word = {theta, f, c, doc, unit, 1, count + v * N_DOCS, weight[v], N_DOCS};
            if (pass == 0) {
                DPLDA_CALL(measure_word, set)(&word, PADDED, 1, sum + v * N_DOCS, squares, products);
                DPLDA_CALL(add_lengths, set)
                (&word, DPLDA_CALL(center_square, set)(c, PADDED) * 0x1p-30f, sum + v * N_DOCS, squares,
                 products, length);
            } else {
                DPLDA_CALL(add_word, set)(&word, &to, PADDED, sum + v * N_DOCS);
                add_to_digest(total, sizeof total);
            }
        }
        for (int d = 0; d < N_DOCS; d++) {
            scale[d] = d % 7 ? (float)(20000 / sqrt(length[unit[d]])) : d % 2 ? 1e9f : 0;
        }
    }
    add_to_digest(sum, N_WORDS * N_DOCS * sizeof *sum);
    add_to_digest(length, sizeof length);
    add_to_digest(integers, sizeof integers);
    free(floats), free(count), free(weight), free(theta), free(factor), free(center), free(sum);
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
