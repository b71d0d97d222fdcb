/* test_cuda_fused.cu - products with what comes before and after them in one launch give the bits
 * of the plain C definitions: a residual added, a gated unit, x's RMS norm before one to three
 * products or a gated unit, gated units and any x of experts.
 *
 * The scale of a norm is no matter of plain C: one thread of the GPU computes it of plain C's mean.
 * With rows of the unit matrix products are the normed x itself. The mean must be one that another
 * order of adding would miss.
 *
 *   test_cuda_fused [least|few|large]
 */
#include "gather_items.cuh"
#include "launch_kernel.cuh"

typedef std::vector<uint16_t> array;

static const unsigned fused_cols[] = {100, 520, 704, 896, 2112, 4096, 8192};
static const unsigned block_sizes[] = {1024, 256, 128};

/* All patterns; the products with factors 1, 1/256 and -1 of a weight of one column meet them. */
static array all_patterns(unsigned step, unsigned first) {
    array all(1 << 16);
    for (size_t i = 0; i < all.size(); i++)
        all[i] = (uint16_t)(i * step + first);
    return all;
}

static unsigned fitting(unsigned nthreads, unsigned ncols) {
    r4_grid grid;
    must(r4_matvec_grid(&r4_gpu_device(), ncols, 1, &grid) ? cudaSuccess : cudaErrorInvalidValue,
         "grid");
    return nthreads < grid.nthreads ? nthreads : grid.nthreads;
}

static std::string describe(const char *what, unsigned nthreads) {
    return std::string(what) + ", " + std::to_string(nthreads) + " threads";
}

/* ---- After products -------------------------------------------------------------------------- */

static void check_added(const sample &s, unsigned row0, unsigned taken, const array &r,
                        const array &x) {
    array y = multiply_plain(s, row0, taken, x.data(), s.r4.per_lane);
    for (size_t i = 0; i < y.size(); i++)
        y[i] = r4_add_plain(r[i], y[i]);
    uint16_t *dx = to_device(x), *dr = to_device(r);
    for (unsigned nthreads : block_sizes) {
        r4_view view = {s.r4, row0, taken, 0, new_device<uint16_t>(taken)};
        r4_fused fused = {dr, nullptr, nullptr, 0};
        must(r4_gpu_matvec(&view, 1, dx, 0, fitting(nthreads, s.r4.ncols), fused), "added");
        same(to_host(view.y, taken), y, describe("added", nthreads).c_str(), s.name);
        cudaFree(view.y);
    }
    cudaFree(dx), cudaFree(dr);
}

/* Some rows of two weights. */
struct gate_and_up {
    const sample *gate, *up;
    unsigned gate_row0, up_row0, taken;
};

static array gate_plain(const gate_and_up &of, const array &act, const array &x) {
    array y(of.taken);
    array gate = multiply_plain(*of.gate, of.gate_row0, of.taken, x.data(), of.gate->r4.per_lane);
    array up = multiply_plain(*of.up, of.up_row0, of.taken, x.data(), of.up->r4.per_lane);
    r4_gate_plain(act.data(), gate.data(), up.data(), of.taken, y.data());
    return y;
}

static void check_gated(const gate_and_up &of, const array &act, const array &x,
                        const array &expected, const uint16_t *norm = nullptr, float eps = 0) {
    uint16_t *dx = to_device(x), *dact = to_device(act);
    for (unsigned nthreads : block_sizes) {
        r4_view views[] = {{of.gate->r4, of.gate_row0, of.taken, 0, new_device<uint16_t>(of.taken)},
                           {of.up->r4, of.up_row0, of.taken, 0, nullptr}};
        r4_fused fused = {nullptr, dact, norm, eps};
        must(r4_gpu_matvec(views, 2, dx, 0, fitting(nthreads, of.gate->r4.ncols), fused), "gated");
        same(to_host(views[0].y, of.taken), expected,
             describe(norm ? "gated, normed" : "gated", nthreads).c_str(), of.gate->name);
        cudaFree(views[0].y);
    }
    cudaFree(dx), cudaFree(dact);
}

/* Products are every BF16 value, but one NaN stands for all: with residuals of every other, of the
 * same size, and of another order; through a table in which every entry is another. */
static void check_every_pattern() {
    unsigned nrows = 1 << 16;
    sample s = new_sample(nrows, 1, PATTERNS), other = new_sample(nrows, 1, PATTERNS);
    for (uint16_t factor : {0x3f80, 0x3b80, 0xbf80}) {
        array x = {factor}, same_size = multiply_plain(s, 0, nrows, x.data(), 1), near = same_size;
        for (size_t i = 0; i < near.size(); i++) {
            same_size[i] ^= 0x8000;
            near[i] = (uint16_t)(near[i] ^ draw() % 0x800 ^ draw() % 2 << 15);
        }
        check_added(s, 0, nrows, same_size, x);
        check_added(s, 0, nrows, near, x);
        for (unsigned step : {1u, 40503u, 7u}) {
            array act = all_patterns(step, 12345);
            check_added(s, 0, nrows, act, x);
            gate_and_up straight = {&s, &other, 0, 0, nrows}, moved = {&s, &s, 0, 999, nrows - 999};
            check_gated(straight, act, x, gate_plain(straight, act, x));
            check_gated(moved, act, x, gate_plain(moved, act, x));
        }
    }
    free_sample(s), free_sample(other);
}

static void check_after(unsigned nrows, unsigned ncols, kind of) {
    sample s = new_sample(nrows, ncols, of), other = new_sample(nrows + 3, ncols, MODEL);
    array x = draw_x(1, ncols, of), act = all_patterns(40503, 99);
    unsigned row0 = nrows / 3, taken = nrows - row0;
    check_added(s, 0, nrows, draw_weights(1, nrows, of), x);
    check_added(s, row0, taken, draw_weights(1, taken, PATTERNS), x);
    gate_and_up all = {&s, &other, 0, 2, nrows}, swapped = {&other, &s, 1, row0, taken};
    gate_and_up joined = {&s, &s, 0, nrows / 2, nrows / 2};
    check_gated(all, act, x, gate_plain(all, act, x));
    check_gated(swapped, act, x, gate_plain(swapped, act, x));
    if (joined.taken > 0) check_gated(joined, act, x, gate_plain(joined, act, x));
    free_sample(s), free_sample(other);
}

/* ---- Before products ------------------------------------------------------------------------- */

__global__ void compute_scale(float *value) {
    *value = rsqrtf(*value);
}

static float scale_of(float mean) {
    float *value = to_device(std::vector<float>{mean});
    launch_kernel<compute_scale>(1, 1, 0, value);
    float scale = to_host(value, 1)[0];
    cudaFree(value);
    return scale;
}

static array norm_plain(const array &x, const array &weight, float eps) {
    unsigned ncols = (unsigned)x.size();
    array normed(ncols);
    float scale = scale_of(r4_mean_square_plain(x.data(), ncols, eps));
    r4_norm_plain(x.data(), weight.data(), ncols, scale, normed.data());
    return normed;
}

static const float all_eps[] = {1e-5f, 1e-6f, 0.0f, 0.37f};

enum x_kind { NORMAL, STEEP, SMALL, HUGE_X, ZERO, WITH_INF, WITH_NAN, NX_KINDS };

/* STEEP: beside a one, a thread's small squares vanish; other threads' add up. */
static array draw_normed(unsigned ncols, int of) {
    array x(ncols);
    for (unsigned k = 0; k < ncols; k++)
        x[k] = of == STEEP
                   ? (k == 0 || draw() % 300 == 0 ? 0x3f80 : (uint16_t)(0x3960 | draw() % 16))
               : of == SMALL  ? draw_weight(TINY)
               : of == HUGE_X ? (uint16_t)(0x5f00 + draw() % 0x100)
               : of == ZERO   ? (uint16_t)(draw() % 2 << 15)
                              : draw_model();
    if (of == WITH_INF) x[draw() % ncols] = 0xff80;
    if (of == WITH_NAN) x[draw() % ncols] = 0x7fc1;
    return x;
}

static array draw_norm_weight(unsigned ncols) {
    array weight(ncols);
    for (uint16_t &w : weight)
        w = (uint16_t)(0x3f00 + draw() % 0x100);
    return weight;
}

/* One to three weights in a launch, and gated ones. */
static void check_normed(const std::vector<const sample *> &weights, const array &x, float eps) {
    unsigned ncols = (unsigned)x.size();
    array weight = draw_norm_weight(ncols), normed = norm_plain(x, weight, eps);
    uint16_t *dx = to_device(x), *dweight = to_device(weight);
    r4_fused fused = {nullptr, nullptr, dweight, eps};
    for (unsigned nparts = 1; nparts <= weights.size(); nparts++)
        for (unsigned nthreads : block_sizes) {
            std::vector<r4_view> views;
            for (unsigned i = 0; i < nparts; i++) {
                const r4_gpu &w = weights[i]->r4;
                views.push_back({w, i, w.nrows - i, 0, new_device<uint16_t>(w.nrows - i)});
            }
            must(r4_gpu_matvec(views.data(), nparts, dx, 0, fitting(nthreads, ncols), fused),
                 "normed");
            for (unsigned i = 0; i < nparts; i++) {
                same(to_host(views[i].y, views[i].taken),
                     multiply_plain(*weights[i], i, views[i].taken, normed.data(),
                                    views[i].w.per_lane),
                     describe("normed", nthreads).c_str(), weights[i]->name);
                cudaFree(views[i].y);
            }
        }
    gate_and_up both = {weights[0], weights[1], 0, 1, weights[1]->r4.nrows - 1};
    array act = all_patterns(40503, 99);
    check_gated(both, act, x, gate_plain(both, act, normed), dweight, eps);
    cudaFree(dx), cudaFree(dweight);
}

static void check_before(unsigned ncols, kind of) {
    sample first = new_sample(41, ncols, of), second = new_sample(40, ncols, MODEL);
    sample third = new_sample(9, ncols, CANCELLING);
    for (int x = 0; x < NX_KINDS; x++)
        for (float eps : all_eps)
            if (of == MODEL || eps == all_eps[0])
                check_normed({&first, &second, &third}, draw_normed(ncols, x), eps);
    free_sample(first), free_sample(second), free_sample(third);
}

/* The squares one after another: the order that must be told from the right one. */
static float mean_in_turn(const array &x, float eps) {
    float sum = 0;
    for (uint16_t value : x) {
        uint32_t bits = (uint32_t)value << 16;
        float wide;
        memcpy(&wide, &bits, sizeof wide);
        sum = fmaf(wide, wide, sum);
    }
    return sum / (float)x.size() + eps;
}

static sample new_unit(unsigned n) {
    sample s;
    s.name = "unit matrix of " + std::to_string(n);
    s.w.resize((size_t)n * n);
    for (size_t i = 0; i < n; i++)
        s.w[i * n + i] = 0x3f80;
    s.bf16 = to_device(s.w);
    s.r4 = weight_from_bf16(s.bf16, n, n, 0);
    return s;
}

/* All of the normed x, for so many eps that a mean of other bits would show. */
static void check_norm_alone(unsigned ncols, run_length length) {
    sample unit = new_unit(ncols);
    array ones(ncols, 0x3f80), other(ncols);
    bool differs = false;
    for (unsigned i = 0; i < 300 + 600000 / ncols; i++) {
        array x = draw_normed(ncols, i % 2 ? STEEP : NORMAL);
        float eps = 1e-6f * (float)(1 + i);
        array normed = norm_plain(x, ones, eps), expected = normed;
        for (uint16_t &value : expected) /* a sum that begins with 0 */
            if (value == 0x8000) value = 0;
        r4_norm_plain(x.data(), ones.data(), ncols, scale_of(mean_in_turn(x, eps)), other.data());
        differs |= other != normed;
        if (length == LEAST && i >= 10) continue;
        uint16_t *dx = to_device(x), *dones = to_device(ones), *y = new_device<uint16_t>(ncols);
        r4_view view = view_all(unit.r4, y);
        must(r4_gpu_matvec(&view, 1, dx, 0, 0, {nullptr, nullptr, dones, eps}), "norm");
        same(to_host(y, ncols), expected, "norm alone", unit.name);
        cudaFree(dx), cudaFree(dones), cudaFree(y);
    }
    expect(differs, "another order gives the same", unit.name);
    free_sample(unit);
}

/* ---- Experts --------------------------------------------------------------------------------- */

static array gate_experts(const part &gate, const part &up, const array &act, const operands &o) {
    array y((size_t)o.n * gate.taken);
    array gates = gather_plain(gate, o, gate.of->r4.per_lane);
    array ups = gather_plain(up, o, up.of->r4.per_lane);
    r4_gate_plain(act.data(), gates.data(), ups.data(), y.size(), y.data());
    return y;
}

static void check_gated_experts(const part &gate, const part &up, const operands &o,
                                unsigned nblocks, const char *what) {
    array act = all_patterns(40503, 99);
    uint16_t *dact = to_device(act), *y = new_device<uint16_t>((size_t)o.n * gate.taken);
    r4_view views[] = {{gate.of->r4, gate.row0, gate.taken, gate.block_nrows, y},
                       {up.of->r4, up.row0, up.taken, up.block_nrows, nullptr}};
    must(r4_gpu_gather(views, 2, o.device, 0, nblocks, dact), "gated experts");
    same(to_host(y, (size_t)o.n * gate.taken), gate_experts(gate, up, act, o),
         (std::string("gated experts, ") + what).c_str(), gate.of->name);
    cudaFree(dact), cudaFree(y);
}

/* Any x, at each place in 8 bytes. */
static void check_experts_any(const part &p, operands &o, const char *what) {
    const uint16_t *x = o.device.x;
    for (unsigned n = r4_per_lane(p.of->r4.ncols); n > 0; n /= 2)
        for (unsigned at = 0; at < 4; at++) {
            array moved(at);
            moved.insert(moved.end(), o.x.begin(), o.x.end());
            uint16_t *dx = to_device(moved), *y = new_device<uint16_t>((size_t)o.n * p.taken);
            o.device.x = dx + at;
            must(r4_gpu_gather_any({p.of->r4, p.row0, p.taken, p.block_nrows, y}, o.device, n, 0),
                 "any experts");
            same(to_host(y, (size_t)o.n * p.taken), gather_plain(p, o, n),
                 (std::string("any x of experts, ") + what).c_str(), p.of->name);
            cudaFree(dx), cudaFree(y);
        }
    o.device.x = x;
}

/* Gate and up of weights of their own and of one. */
static void check_experts(unsigned block_nrows, unsigned ncols, kind of) {
    const unsigned nexperts = 5;
    sample s = new_sample(nexperts * block_nrows, ncols, of);
    sample other = new_sample(nexperts * (block_nrows + 2), ncols, MODEL);
    unsigned half = block_nrows / 2;
    part whole = {&s, block_nrows, 0, block_nrows};
    part beside = {&other, block_nrows + 2, 1, block_nrows};
    part first = {&s, block_nrows, 0, half}, second = {&s, block_nrows, half, half};

    for (int p = 0; p < NPATTERNS; p++)
        for (unsigned n : {1u, 8u}) {
            operands o = new_operands(n, 1 + n / 3, nexperts, ncols, of, (pattern)p);
            check_gated_experts(whole, beside, o, 0, pattern_names[p]);
            check_gated_experts(beside, whole, o, n * block_nrows, pattern_names[p]);
            if (half > 0) check_gated_experts(first, second, o, 0, pattern_names[p]);
            if (ncols <= 2112) check_experts_any(beside, o, pattern_names[p]);
            if (ncols <= 2112 && half > 0) check_experts_any(second, o, pattern_names[p]);
            free_operands(o);
        }
    free_sample(s), free_sample(other);
}

int main(int argc, char **argv) {
    run_length length = read_length(argc, argv);
    if (length > FEW) check_every_pattern();
    for (unsigned ncols : fused_cols)
        for (int of = 0; of < NKINDS; of++) {
            /* A checker of races takes a tenth of a second for each launch. */
            if (length <= FEW && (ncols != 520 || of != CANCELLING)) continue;
            for (unsigned nrows : {1u, 37u, 300u})
                if (nrows == 37 || (length > FEW && nrows * ncols <= 300000))
                    check_after(nrows, ncols, (kind)of);
            if (ncols <= 4096) check_experts(5, ncols, (kind)of);
            if (of == MODEL || of == CANCELLING || of == FEW_ESCAPES) check_before(ncols, (kind)of);
        }
    for (unsigned ncols : fused_cols)
        if (length > FEW || ncols == 520) check_norm_alone(ncols, length);
    return end_checks();
}
