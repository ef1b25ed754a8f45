/* rng.c - the sampler's random numbers: xoroshiro128++ (Blackman and Vigna, 2019), seeded through splitmix64. */
#include "sample/sample.h"

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void ramet_sampler_seed(ramet_sampler *sampler, uint64_t seed, uint64_t branch) {
    uint64_t state = seed;
    state = splitmix(&state) ^ branch; /* mixed first: seed 1 branch 0 is not seed 0 branch 1 */
    sampler->rng[0] = splitmix(&state);
    sampler->rng[1] = splitmix(&state); /* never both zero: splitmix is a bijection of distinct states */
}

double ramet_rng_uniform(uint64_t rng[2]) {
    uint64_t s0 = rng[0], s1 = rng[1];
    uint64_t value = rotate_left(s0 + s1, 17) + s0;
    s1 ^= s0;
    rng[0] = rotate_left(s0, 49) ^ s1 ^ (s1 << 21);
    rng[1] = rotate_left(s1, 28);
    return (double)(value >> 11) * 0x1p-53;
}
