/* D-ULA on the Gaussian mixture with tied means, ring of 5 agents, 20 rows each: the limit of one core.

   Written for speed and for this one problem: sizes are constants, everything stays in the cache, and every loop
   is one that compilers vectorise. As in the engine, a block of steps prepares step sizes and noise at once:
   xoshiro128+ in eight lanes (Blackman and Vigna), Box-Muller for the normal numbers. */

#include <math.h>
#include <stdint.h>

enum { AGENTS = 5, ROWS = 20, SIZE = 2, LANES = 8, BLOCK = 128, NUMBERS = BLOCK * AGENTS * SIZE };

typedef struct {
    uint32_t word[4][LANES];
} Generator;

typedef struct {
    float start, offset, exponent; /* start * (offset / (offset + k))^exponent */
} Schedule;

/* The seeds of all lanes, by splitmix64. */
static void seed_generator(Generator *generator, uint64_t seed) {
    for (int i = 0; i < 4; i++)
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t z = (seed += 0x9E3779B97F4A7C15ull);
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
            z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
            generator->word[i][lane] = (uint32_t)(z >> 32);
        }
}

static void random_words(Generator *generator, uint32_t *restrict out, int count) {
    uint32_t(*word)[LANES] = generator->word;
    for (int first = 0; first < count; first += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t shifted = word[1][lane] << 9;
            out[first + lane] = word[0][lane] + word[3][lane];
            word[2][lane] ^= word[0][lane];
            word[3][lane] ^= word[1][lane];
            word[1][lane] ^= word[2][lane];
            word[0][lane] ^= word[3][lane];
            word[2][lane] ^= shifted;
            word[3][lane] = (word[3][lane] << 11) | (word[3][lane] >> 21);
        }
}

/* Standard normal numbers, two from each pair of words. */
static void normals(Generator *generator, float *restrict out) {
    static uint32_t words[NUMBERS];
    static float radius[NUMBERS / 2], angle[NUMBERS / 2];
    const float tiny = 0x1p-24f, turn = 6.28318530718f;
    random_words(generator, words, NUMBERS);
    for (int i = 0; i < NUMBERS / 2; i++) {
        radius[i] = sqrtf(-2.0f * logf(((float)(int32_t)(words[i] >> 8) + 0.5f) * tiny));
        angle[i] = (float)(int32_t)(words[i + NUMBERS / 2] >> 8) * (tiny * turn);
    }
    /* two loops, because compilers do not vectorise a sine and a cosine of the same angle */
    for (int i = 0; i < NUMBERS / 2; i++) out[i] = radius[i] * cosf(angle[i]);
    for (int i = 0; i < NUMBERS / 2; i++) out[i + NUMBERS / 2] = radius[i] * sinf(angle[i]);
}

static void schedule_values(Schedule schedule, int64_t first_step, float *restrict out) {
    float offset = schedule.offset;
    for (int j = 0; j < BLOCK; j++)
        out[j] = schedule.start * powf(offset / (offset + (float)first_step + (float)j), schedule.exponent);
}

/* The gradient of one agent's potential; see consilience.models.mixture. */
static inline void agent_gradient(const float *restrict x, const float *restrict position, float *restrict gradient) {
    float first = position[0], second = position[1], sum_first = 0, sum_second = 0;
    for (int row = 0; row < ROWS; row++) {
        float residual = x[row] - first;
        float gap = second * (2 * residual - second) * 0.25f;
        float share = 1.0f / (1.0f + expf(-gap));
        sum_first += residual - share * second;
        sum_second += share * (residual - second);
    }
    gradient[0] = -0.5f * sum_first + first / (10.0f * AGENTS);
    gradient[1] = -0.5f * sum_second + second / (1.0f * AGENTS);
}

/* All agents' gradients, for the check that every contestant computes the same. */
void gradients(const float *data, const float *position, float *gradient) {
    for (int i = 0; i < AGENTS; i++) agent_gradient(data + ROWS * i, position + SIZE * i, gradient + SIZE * i);
}

/* `num_steps` steps from `position` (AGENTS x SIZE, replaced by the last one), every `store_every`-th into `draws`. */
void sample(const float *data, float *position, float *draws, int64_t num_steps, int64_t store_every, uint64_t seed,
            Schedule step_size, Schedule consensus) {
    static float noise[NUMBERS], alpha[BLOCK], beta[BLOCK];
    float next[AGENTS * SIZE];
    Generator generator;
    int64_t until_draw = store_every;
    seed_generator(&generator, seed);
    for (int64_t first_step = 0; first_step < num_steps; first_step += BLOCK) {
        int64_t here = num_steps - first_step < BLOCK ? num_steps - first_step : BLOCK;
        normals(&generator, noise);
        schedule_values(step_size, first_step, alpha);
        schedule_values(consensus, first_step, beta);
        for (int64_t j = 0; j < here; j++) {
            float drift = AGENTS * alpha[j], pull = beta[j], deviation = sqrtf(2 * drift);
            for (int i = 0; i < AGENTS; i++) {
                const float *own = position + SIZE * i;
                const float *left = position + SIZE * ((i + AGENTS - 1) % AGENTS);
                const float *right = position + SIZE * ((i + 1) % AGENTS);
                const float *v = noise + (j * AGENTS + i) * SIZE;
                float gradient[SIZE];
                agent_gradient(data + ROWS * i, own, gradient);
                for (int e = 0; e < SIZE; e++) {
                    float disagreement = 2 * own[e] - left[e] - right[e];
                    next[SIZE * i + e] = own[e] - pull * disagreement - drift * gradient[e] + deviation * v[e];
                }
            }
            for (int e = 0; e < AGENTS * SIZE; e++) position[e] = next[e];
            if (--until_draw == 0) {
                for (int e = 0; e < AGENTS * SIZE; e++) *draws++ = next[e];
                until_draw = store_every;
            }
        }
    }
}
