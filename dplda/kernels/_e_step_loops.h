#define LANES (64 / (int)sizeof(REAL))        /* of a vector */
#define TILE_VECTORS (DPLDA_WORDS / LANES)

/* tile[k][j] = table[word[j]][k] and the counts, for up to DPLDA_WORDS words and for topics up to a
 * multiple of 4; the rest of a partial tile has count 0. */
DPLDA_INLINE void TYPED(fill_tile)(const REAL *table, ptrdiff_t stride, const int32_t *word,
                                   const REAL *count, ptrdiff_t n, ptrdiff_t n_components,
                                   REAL *__restrict tile, REAL *__restrict tile_count) {
    for (ptrdiff_t j = 0; j < DPLDA_WORDS; j++) {
        tile_count[j] = j < n ? count[j] : 0;
    }
    for (ptrdiff_t j = 0; j < DPLDA_WORDS; j += 4) {
        const REAL *row[4];
        for (int i = 0; i < 4; i++) {
            row[i] = table + stride * word[j + i < n ? j + i : 0];
        }
        for (ptrdiff_t k = 0; k < n_components; k += 4) {
            TYPED(transpose)(row, k, tile + k * DPLDA_WORDS + j);
        }
    }
    for (ptrdiff_t i = 0; i < n_components * DPLDA_WORDS; i++) {
        tile[i] = tile[i] >= SMALLEST ? tile[i] : 0;
    }
}

/* Add the words of a tile, in its first `n` vectors, to the sums of the topics, LANES a topic.
 *
 * The words of a topic are contiguous, so that a word's norm needs no sum across a vector. */
DPLDA_INLINE void TYPED(add_tile)(const REAL *tile, const REAL *count, const int32_t *topic,
                                  const REAL *weight, ptrdiff_t n_topics, const int n_vectors,
                                  REAL *sum) {
    VEC share[TILE_VECTORS];
    for (int i = 0; i < n_vectors; i++) {
        share[i] = OP(all)(0);
    }
    for (ptrdiff_t a = 0; a < n_topics; a += 4) {
        const REAL *r0 = tile + topic[a] * DPLDA_WORDS, *r1 = tile + topic[a + 1] * DPLDA_WORDS;
        const REAL *r2 = tile + topic[a + 2] * DPLDA_WORDS, *r3 = tile + topic[a + 3] * DPLDA_WORDS;
        const VEC w0 = OP(all)(weight[a]), w1 = OP(all)(weight[a + 1]);
        const VEC w2 = OP(all)(weight[a + 2]), w3 = OP(all)(weight[a + 3]);
        for (int i = 0; i < n_vectors; i++) {
            const ptrdiff_t j = i * LANES;
            const VEC first = OP(add)(OP(mul)(w0, OP(load)(r0 + j)), OP(mul)(w1, OP(load)(r1 + j)));
            const VEC third = OP(mul)(w2, OP(load)(r2 + j));
            const VEC second = OP(add)(third, OP(mul)(w3, OP(load)(r3 + j)));
            share[i] = OP(add)(share[i], OP(add)(first, second));
        }
    }
    for (int i = 0; i < n_vectors; i++) {
        share[i] = OP(div)(OP(load)(count + i * LANES), OP(add)(share[i], OP(all)(EPSILON)));
    }
    for (ptrdiff_t a = 0; a < n_topics; a++, sum += LANES) {
        const REAL *row = tile + topic[a] * DPLDA_WORDS;
        VEC total = OP(load)(sum);
        for (int i = 0; i < n_vectors; i += 2) {
            const VEC first = OP(mul)(share[i], OP(load)(row + i * LANES));
            const VEC second = OP(mul)(share[i + 1], OP(load)(row + (i + 1) * LANES));
            total = OP(add)(total, OP(add)(first, second));
        }
        OP(store)(sum, total);
    }
}

/* gamma (in: the start) and its exp(E[log theta]); see e_step for the arguments.
 *
 * The arrays of the iteration hold the active topics. A topic leaves when it is at the prior with
 * weight 0, and its weight would be 0 even with the smallest sum that gamma can have, K * prior. */
static void TYPED(e_step)(const int32_t *word, const REAL *count, ptrdiff_t n_words,
                               const REAL *table, ptrdiff_t stride, REAL prior,
                               ptrdiff_t n_components, ptrdiff_t max_iter, double tol, REAL *gamma,
                               REAL *exp_doc_topic, REAL *scratch) {
    const ptrdiff_t n_tiles = (n_words + DPLDA_WORDS - 1) / DPLDA_WORDS;
    const ptrdiff_t tile_size = (n_components + 3) / 4 * 4 * DPLDA_WORDS;
    REAL *tiles = (REAL *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
    REAL *counts = tiles + n_tiles * tile_size;
    REAL *sums = counts + n_tiles * DPLDA_WORDS;
    REAL *current = sums + stride * LANES;
    REAL *weight = current + stride;
    int32_t *topic = (int32_t *)(weight + stride);
    ptrdiff_t n_topics = n_components;
    REAL base, total = 0;
    const REAL least = TYPED(digamma)(n_components * prior, &base);
    const int may_leave = TYPED(weight)(prior, least, 1 / base) == 0;

    for (ptrdiff_t t = 0, j = 0; t < n_tiles; t++, j += DPLDA_WORDS) {
        TYPED(fill_tile)(table, stride, word + j, count + j, n_words - j, n_components,
                              tiles + t * tile_size, counts + j);
    }
    for (ptrdiff_t k = 0; k < stride; k++) {
        current[k] = k < n_components ? gamma[k] : 1;
        topic[k] = k < n_components ? (int32_t)k : 0;
        total += k < n_components ? gamma[k] : 0;
    }
    TYPED(weights)(current, n_topics, total, weight);

    for (ptrdiff_t step = 0; step < max_iter; step++) {
        double change = 0;
        ptrdiff_t n_left = 0;
        memset(sums, 0, n_topics * LANES * sizeof *sums);
        for (ptrdiff_t a = n_topics; a % 4; a++) { /* a tile takes 4 at a time */
            weight[a] = 0;
        }
        for (ptrdiff_t t = 0; t < n_tiles; t++) {
            const REAL *tile = tiles + t * tile_size, *count = counts + t * DPLDA_WORDS;
            if (n_words - t * DPLDA_WORDS > DPLDA_WORDS / 2) {
                TYPED(add_tile)(tile, count, topic, weight, n_topics, TILE_VECTORS, sums);
            } else {
                TYPED(add_tile)(tile, count, topic, weight, n_topics, TILE_VECTORS / 2, sums);
            }
        }
        total = (n_components - n_topics) * prior;
        for (ptrdiff_t a = 0; a < n_topics; a++) {
            const REAL next = prior + weight[a] * OP(sum)(OP(load)(sums + a * LANES));
            change += fabs((double)(next - current[a]));
            total += next;
            current[a] = next;
        }
        TYPED(weights)(current, n_topics, total, weight);
        for (ptrdiff_t a = 0; a < n_topics; a++) {
            const int stays = !may_leave || current[a] != prior || weight[a] != 0;
            current[n_left] = current[a];
            weight[n_left] = weight[a];
            topic[n_left] = topic[a];
            n_left += stays;
        }
        n_topics = n_left;
        if (change / n_components < tol) {
            break;
        }
    }

    for (ptrdiff_t k = 0; k < stride; k++) {
        gamma[k] = k < n_components ? prior : 0;
        exp_doc_topic[k] = 0;
    }
    for (ptrdiff_t a = 0; a < n_topics; a++) {
        gamma[topic[a]] = current[a];
        exp_doc_topic[topic[a]] = weight[a];
    }
}

#undef LANES
#undef TILE_VECTORS
