/* Sweeps of topic draws, with short and long rows. */
#include "_frozen.h"
#include "inputs.h"

enum { N_DOCS = 40, N_WORDS = 60, N_SWEEPS = 2 };

static void sweep(int set, int64_t n_topics) {
    const int64_t padded = (n_topics + 15) / 16 * 16;
    int64_t doc_ptr[N_DOCS + 1] = {0}, order[N_DOCS];
    for (int d = 0; d < N_DOCS; d++) {
        order[d] = N_DOCS - 1 - d;
        doc_ptr[d + 1] = doc_ptr[d] + below(90);
    }
    const int64_t n = doc_ptr[N_DOCS];
    int32_t *word = zeros(n, sizeof *word);
    int16_t *topics = zeros(n, sizeof *topics);
    uint64_t *bits = zeros(n, sizeof *bits), *refinement = zeros(n, sizeof *refinement);
    uint16_t *half = zeros(N_WORDS * padded, sizeof *half);
    for (int64_t i = 0; i < n; i++) {
        word[i] = (int32_t)below(N_WORDS);
        topics[i] = (int16_t)(below(n_topics + 1) - 1);
    }
    for (int64_t w = 0; w < N_WORDS; w++) {
        for (int64_t k = 0; k < n_topics; k++) {
            half[w * padded + k] = (uint16_t)(0x0400 + below(0x7800)); /* normal halves */
        }
    }
    dplda_sweep s = {word,   doc_ptr, order,      N_DOCS, topics, half, padded, 0.1, bits,
                     refinement, 0,   NULL, 0, 0};
    s.tolerance = dplda_tolerance(padded);
    s.scratch = zeros(dplda_scratch_floats(padded), sizeof *s.scratch);
    for (int j = 0; j < N_SWEEPS; j++) {
        for (int64_t i = 0; i < n; i++) {
            bits[i] = draw();
            refinement[i] = draw();
        }
        dplda_sweep_documents(&s, set);
        add_to_digest(topics, n * sizeof *topics);
    }
    add_to_digest(&s.unrefined, sizeof s.unrefined);
    free(word), free(topics), free(bits), free(refinement), free(half), free(s.scratch);
}

void run(int set) {
    sweep(set, 5);
    sweep(set, 100);
    sweep(set, 300);
    sweep(set, 700);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
