/* Numbers to feed a kernel with, and a digest of what it returns. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint64_t draw(void) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static int64_t below(int64_t n) { return (int64_t)(draw() % (uint64_t)n); }

/* Between 0 and 1, over many powers of two. */
static double share(void) {
    const double uniform = (double)(draw() >> 11) / 9007199254740992.0;
    return uniform * uniform * uniform + 1e-6;
}

static void *zeros(size_t n, size_t size) {
    void *array = calloc(n, size);
    if (!array) {
        abort();
    }
    return array;
}
static float *shares(size_t n) {
    float *array = zeros(n, sizeof *array);
    for (size_t i = 0; i < n; i++) {
        array[i] = (float)share();
    }
    return array;
}

static uint64_t digest;

static void add_to_digest(const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        digest = (digest ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
}

void run(int set); /* the kernel, with inputs that it draws */

static void print_digests(int best_set) {
    for (int set = 0; set <= best_set; set++) {
        state = 1;
        digest = UINT64_C(0xcbf29ce484222325);
        run(set);
        printf("%016llx\n", (unsigned long long)digest);
    }
}
