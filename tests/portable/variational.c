/* Topic weights of documents, and the integers that documents contribute to a sum. */
#include "_variational.h"
#include "inputs.h"

enum { N_DOCS = 33, N_WORDS = 80, N_TOPICS = 20, PADDED = 32, MOST = 300 };

static int16_t *narrowed(int set, const float *table, int n_rows, float size) {
    int16_t *rows = zeros(n_rows * PADDED, sizeof *rows);
    for (int i = 0; i < n_rows; i++) {
        const float *row = table + i * PADDED;
        const float factor = size > 0 ? DPLDA_CALL(relative, set)(row, PADDED, size) : 32767;
        DPLDA_CALL(narrow, set)(row, 0, PADDED, factor, PADDED, rows + i * PADDED);
    }
    return rows;
}

static void fold_in_all(int set, int in_integers, int leaves_out, int variational) {
    float *phi = shares(N_WORDS * PADDED), scratch[(1 + 6 * DPLDA_TOGETHER) * PADDED];
    float inverse_size[PADDED] = {0}, theta[DPLDA_TOGETHER][PADDED] = {{0}};
    float count[DPLDA_TOGETHER][MOST];
    uint8_t rows[N_WORDS * PADDED], copy[MOST * PADDED];
    int32_t word[DPLDA_TOGETHER][MOST], numbers[MOST];
    const int m = leaves_out ? 1 : DPLDA_TOGETHER;
    for (int i = 0; i < N_WORDS * PADDED; i++) {
        phi[i] *= i % PADDED < N_TOPICS;
    }
    for (int k = 0; k < N_TOPICS; k++) {
        inverse_size[k] = 1.0f / (100 + 7 * k);
    }
    for (int v = 0; v < N_WORDS; v++) {
        DPLDA_CALL(narrow_bytes, set)(phi + v * PADDED, PADDED, rows + v * PADDED);
    }
    for (int j = 0; j < MOST; j++) {
        numbers[j] = j;
    }
    const dplda_inference all = {phi, in_integers ? rows : NULL, PADDED, N_TOPICS, 0.05f, 25,
                                 1e-3f, variational, leaves_out ? inverse_size : NULL, 0.01f};
    for (int d = 0; d < N_DOCS; d++) {
        dplda_document docs[DPLDA_TOGETHER];
        int n[DPLDA_TOGETHER];
        for (int i = 0; i < m; i++) {
            n[i] = (int)below(MOST);
            for (int j = 0; j < n[i]; j++) {
                word[i][j] = (int32_t)below(N_WORDS);
                count[i][j] = (float)(1 + below(4));
            }
            for (int k = 0; k < N_TOPICS; k++) {
                theta[i][k] = 1.0f / N_TOPICS;
            }
        }
        for (int call = 0; call <= leaves_out; call++) { /* the first one has nothing of its own */
            for (int i = 0; i < m; i++) {
                docs[i].n = n[i], docs[i].word = word[i], docs[i].count = count[i];
                docs[i].theta = theta[i];
            }
            DPLDA_CALL(fold_in, set)(&all, docs, m, scratch, copy, numbers);
            add_to_digest(theta, m * sizeof *theta);
        }
    }
    free(phi);
}

/* Each word is in each document; every fifth one has the unit of the one before. */
static void contribute(int set) {
    float *floats = shares((N_DOCS + 2 * N_WORDS) * PADDED), *count = shares(N_WORDS * N_DOCS);
    float *weight = shares(N_WORDS), squares[N_DOCS], products[N_DOCS], scale[N_DOCS];
    int16_t *theta = narrowed(set, floats, N_DOCS, 32767);
    int16_t *factor = narrowed(set, floats + N_DOCS * PADDED, N_WORDS, 32767), *center;
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
    for (int variational = 0; variational < 2; variational++) {
        fold_in_all(set, 0, 0, variational);
        fold_in_all(set, 1, 0, variational);
        fold_in_all(set, 1, 1, variational);
    }
    contribute(set);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
