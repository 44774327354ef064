/* dplda_clip of _clip.h: every whole vector of two cells, at every radius, and hostile lengths. */
#include <stdio.h>

#include "_clip.h"

static long long cases, too_long, left_out, short_of, seconds;

/* share: of the length that dplda_clip is told; 1: the computed one */
static void one(float x, float y, int64_t radius, double norm, double share) {
    const float value[2] = {x, y};
    const double length = share * sqrt((double)x * x + (double)y * y);
    int32_t out[2] = {0, 0};
    const int is_kept = dplda_clip(value, 2, length, 1 / norm, radius, out);
    const __int128 square = (__int128)out[0] * out[0] + (__int128)out[1] * out[1];
    cases++;
    if (!is_kept) {
        left_out += share == 1 && length > 0;
        return;
    }
    too_long += square > (__int128)radius * radius;
    /* toward zero: a cell is at most its share of the radius, and hardly less than one below it */
    const double scale = (double)radius * (length > norm ? 1 / length : 1 / norm);
    const double exact[2] = {x * scale, y * scale};
    for (int i = 0; i < 2; i++) {
        const double below = exact[i] - out[i], slack = 1e-6 * exact[i];
        short_of += share == 1 && (below < -slack || below > 1 + slack + exact[i] / 65000);
    }
    seconds += share == 1 && out[0] < (int32_t)(x * (float)scale);
}

int main(void) {
    const int64_t radii[] = {1000, 46341, 65536, 1 << 20, (1 << 24) + 1, (1 << 30) - 1, 1 << 30};
    const double shares[] = {1, .99999, .9, .75};
    for (int x = 0; x <= 120; x++) {
        for (int y = 0; y <= 120; y++) {
            for (int64_t radius = 1; radius <= 64; radius++) {
                one((float)x, (float)y, radius, 1, 1);
                one((float)x, (float)y, radius, 50, 1);
            }
            for (int i = 0; i < 7; i++) {
                for (int j = 0; j < 4; j++) one((float)x, (float)y, radii[i], 1, shares[j]);
            }
        }
    }
    printf("cases %lld too_long %lld left_out %lld short_of %lld seconds %lld\n", cases, too_long,
           left_out, short_of, seconds);
    return 0;
}
