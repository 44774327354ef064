/* The E-step of variational Bayes, in float and in double. */
#include "_e_step.h"
#include "inputs.h"

enum { N_DOCS = 12, N_WORDS = 400, N_TOPICS = 21, PADDED = 32, MOST = 150, SCRATCH = 1 << 15 };

#define E_STEPS(REAL)                                                                             \
    static void e_steps_##REAL(int set) {                                                         \
        REAL *table = zeros(N_WORDS * PADDED, sizeof *table);                                     \
        REAL *scratch = zeros(SCRATCH, sizeof *scratch);                                          \
        for (int i = 0; i < N_WORDS * PADDED; i++) {                                              \
            table[i] = i % PADDED < N_TOPICS ? (REAL)share() : 0;                                 \
        }                                                                                         \
        for (int d = 0; d < N_DOCS; d++) {                                                        \
            const int n = 1 + (int)below(MOST);                                                   \
            int32_t word[MOST];                                                                   \
            REAL count[MOST], gamma[PADDED], weight[PADDED] = {0};                                \
            for (int j = 0; j < n; j++) {                                                         \
                word[j] = (int32_t)below(N_WORDS);                                                \
                count[j] = (REAL)(1 + below(4));                                                  \
            }                                                                                     \
            for (int k = 0; k < PADDED; k++) {                                                    \
                gamma[k] = 1;                                                                     \
            }                                                                                     \
            DPLDA_CALL(e_step_##REAL, set)                                                        \
            (word, count, n, table, PADDED, (REAL)0.1, N_TOPICS, 30, 1e-4, gamma, weight, scratch); \
            add_to_digest(gamma, N_TOPICS * sizeof *gamma);                                       \
            add_to_digest(weight, N_TOPICS * sizeof *weight);                                     \
        }                                                                                         \
        free(table), free(scratch);                                                               \
    }
E_STEPS(float)
E_STEPS(double)

void run(int set) {
    e_steps_float(set);
    e_steps_double(set);
}

int main(void) {
    print_digests(dplda_best_set());
    return 0;
}
