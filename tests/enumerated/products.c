/* The 16-bit arithmetic of _contributions.h, for every input, on one instruction set.
 *
 * products SET: vs_mul for all pairs from 0 to 32767; signed: for all pairs.
 * entries SET: the integer of an entry for each p, A and e that occur.
 * multipliers SET STEP: A and U of every STEP-th S, at the ends of each A.
 * sums SET: sums of equal entries, and their squares, for each U.
 */
#ifndef DPLDA_SET
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define DPLDA_KERNEL "products.c"
#include "_each_set.h"

int main(int argc, char **argv) {
    const int set = atoi(argv[2]);
    if (set > dplda_best_set()) return 2;
    if (!strcmp(argv[1], "products")) DPLDA_CALL(check_products, set)(0);
    if (!strcmp(argv[1], "signed")) DPLDA_CALL(check_products, set)(-32768);
    if (!strcmp(argv[1], "entries")) DPLDA_CALL(check_entries, set)();
    if (!strcmp(argv[1], "multipliers")) DPLDA_CALL(check_multipliers, set)(atoi(argv[3]));
    if (!strcmp(argv[1], "sums")) DPLDA_CALL(check_sums, set)();
    return 0;
}
#else
#include "_contributions.h"

static void NAME(check_products)(int low) {
    long long cases = 0, wrong = 0;
    for (int a = low; a <= 32767; a++) {
        const vs factor = vs_all((int16_t)a);
        for (int b = low; b <= 32767; b += 32) {
            int16_t of[32], found[32];
            int bad = 0;
            for (int j = 0; j < 32; j++) of[j] = (int16_t)(b + j);
            vs_store(found, vs_mul(vs_load(of), factor));
            for (int j = 0; j < 32; j++) {
                const int exact = (a * (b + j) + (1 << 14)) >> 15;
                bad += (int16_t)exact != found[j];
            }
            cases += 32, wrong += bad;
        }
    }
    printf("cases %lld wrong %lld\n", cases, wrong);
}

/* theta R(32767 / 2^15) takes every value p from 0 to 32766. A is at most 256 if e > 0. */
static void NAME(check_entries)(void) {
    long long cases = 0, wrong = 0;
    int largest = -100;
    const vs factor = vs_all(32767), center = vs_all(0);
    for (int e = 0; e <= 10; e++) {
        for (int first = 0; first < 32767; first += 32) {
            int16_t theta[32];
            int32_t found[32];
            int p[32];
            for (int j = 0; j < 32; j++) {
                const int value = first + j < 32766 ? first + j : 32766;
                theta[j] = (int16_t)(value > 16384 ? value + 1 : value);
                p[j] = value;
            }
            for (int A = 0; A <= (e ? 256 : DPLDA_MOST_16); A++) {
                veci held[2] = {vi_all(0), vi_all(0)};
                int most = -100, bad = 0;
                NAME(add_entry)(1, theta, &factor, &center, A * 0x10001, 0, e, held);
                vi_store(found, held[0]), vi_store(found + 16, held[1]);
                for (int j = 0; j < 32; j++) {
                    /* the least U: u > (A - 1) S / 2^(15 + e), S >= p, and U >= u - 1/2 */
                    const int t = found[j % 2 * 16 + j / 2]; /* even topics come first */
                    const int64_t product = (int64_t)(A - 1) * p[j];
                    const int64_t least = ((product + ((int64_t)1 << (15 + e)) - 1) >> (15 + e)) - 1;
                    const int excess = t - (int)(least > 0 ? least : 0);
                    most = excess > most ? excess : most, bad += t < 0;
                }
                cases += 32, wrong += bad, largest = most > largest ? most : largest;
            }
        }
    }
    printf("cases %lld negative %lld largest %d\n", cases, wrong, largest);
}

/* The largest float u of at most (A - 1) S / 2^(15 + e) must not get the multiplier A: roundings
 * are monotone, so a u with the multiplier A is above it. U is at least u - 1/2. */
static void NAME(check_multipliers)(int step) {
    long long cases = 0, wrong = 0;
    for (int e = 0; e <= 10; e++) {
        const int last = e ? 257 : DPLDA_MOST_16;
        for (int64_t S = 1; S < INT32_MAX; S += S < 32767 ? step : S / 3) {
            for (int A = 1; A <= last; A += 16) {
                float count[16], scale = 1, wide[16];
                int32_t unit[16] = {0}, sum[16], times_p[16], times_c[16], bits[16];
                dplda_word word = {0};
                for (int j = 0; j < 16; j++) {
                    const double exact = (double)(A + j - 1) * (double)S / (double)(1 << (15 + e));
                    count[j] = (float)exact;
                    if (count[j] > exact) count[j] = nextafterf(count[j], 0);
                    sum[j] = (int32_t)S;
                }
                word.count = count, word.unit = unit, word.weight = 1, word.n_entries = 16;
                NAME(multipliers)(&word, &scale, sum, 0, 16, times_p, times_c, bits, wide);
                for (int j = 0; j < 16; j++) {
                    const int p = times_p[j] & 0xffff, U = times_c[j] & 0xffff;
                    if (wide[j] > 0 || A + j > last) continue;
                    cases++;
                    wrong += times_p[j] != p * 0x10001 || times_c[j] != U * 0x10001;
                    wrong += bits[j] == e && p > A + j - 1;
                    wrong += bits[j] > 0 && p > 256;
                    wrong += (double)U + .5 < count[j] || U > count[j] + .5;
                }
            }
        }
    }
    printf("cases %lld wrong %lld\n", cases, wrong);
}

/* n entries of one word, each of another unit, of one document. */
static void NAME(add_equal)(int n, float u, int width, const int16_t *theta, const int16_t *center,
                            int64_t *total, int64_t *square) {
    static int32_t numbers[1 << 18], zeros[1 << 18], sums[1 << 18];
    static float counts[1 << 18], squares[1 << 18], products[1 << 18], scales[1 << 18];
    int16_t factor[256];
    dplda_word word = {0};
    dplda_sum to = {0};
    for (int i = 0; i < n; i++) {
        numbers[i] = i, zeros[i] = 0, counts[i] = u, scales[i] = 1, square[i] = 0;
    }
    for (int k = 0; k < width; k++) factor[k] = 32767, total[k] = 0;
    word.theta = theta, word.factor = factor, word.center = center, word.weight = 1;
    word.doc = zeros, word.unit = numbers, word.count = counts, word.n_entries = n;
    NAME(measure)(8, &word, 1, sums, squares, products);
    to.scale = scales, to.sign = 1, to.total = total, to.n_topics = width, to.square = square;
    NAME(add)(8, &word, &to, sums);
}

static void NAME(check_sums)(void) {
    static int64_t square[1 << 18];
    static int16_t theta[4][256], center[4][256];
    long long cases = 0, wrong = 0;
    /* one topic takes all, and its center nothing; the opposite; all alike; centers of two topics */
    theta[0][0] = 32767, center[0][1] = 32767, center[0][2] = 16385;
    for (int k = 0; k < 256; k++) theta[1][k] = 100, center[1][k] = 192;
    for (int k = 0; k < 256; k++) theta[2][k] = 32767;
    theta[3][5] = 1, center[3][5] = 32767, center[3][9] = 16385;
    for (int U = 1; U <= DPLDA_MOST_16; U++) {
        for (int form = 0; form < 4; form++) {
            int64_t one[256], all[256], exact = 0;
            const int n = form ? 3 : U == 32000 ? 200000 : 2 * 32767 / (U + 4) + 2;
            const float u = form ? (float)U : nextafterf((float)U + .5f, 0); /* t above U */
            NAME(add_equal)(1, u, 256, theta[form], center[form], one, square);
            for (int k = 0; k < 256; k++) {
                exact += one[k] * one[k];
                wrong += llabs(one[k]) > U + 2;
            }
            wrong += square[0] != exact;
            NAME(add_equal)(n, u, 256, theta[form], center[form], all, square);
            for (int k = 0; k < 256; k++) wrong += all[k] != n * one[k];
            for (int i = 0; i < n; i++) wrong += square[i] != exact;
            cases += n;
        }
    }
    printf("cases %lld wrong %lld\n", cases, wrong);
}
#endif
