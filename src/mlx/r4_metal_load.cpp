// r4_metal_load.cpp - packed weights for Apple GPUs, by kernels of src/metal; see gpu_load.h.
#include <limits>

#include "binade_r4.h"
#include "mlx/gpu_load.h"
#include "mlx/ops.h"
#include "mlx/r4_metal.h"
#include "mlx/transforms.h"

namespace binade {

namespace {

mx::array at_least(const mx::array &a, int n, mx::Stream s) {
    auto flat = mx::flatten(a, s);
    int missing = n - static_cast<int>(a.size());
    return missing > 0 ? mx::pad(flat, {0, missing}, mx::array(0, a.dtype()), "constant", s) : a;
}

Arrays launch(const char *kernel, const GpuExtent &e, const std::vector<int> &sizes,
              const Named &given, const std::vector<mx::Shape> &shapes, mx::Stream s) {
    metal_plan plan;
    metal_plan_load(kernel, e.nrows, &plan);
    for (int size : sizes)
        plan.sizes[plan.nsizes++] = size;
    return metal_launch(plan, given, shapes, s);
}

// [n + 1]: sums of those before.
mx::array scan(const mx::array &values, mx::Stream s) {
    metal_plan plan;
    int n = static_cast<int>(values.size());
    metal_plan_scan(n, &plan);
    return metal_launch(plan, {{"values", values}}, {{n + 1}}, s)[0];
}

bool has_fault(const mx::array &faults, mx::Stream s) {
    return mx::max(faults, s).item<uint32_t>() != 0;
}

// sizes: K, rows, and what else the two kernels of a source take.
Arrays two_passes(const char *pass1, const char *pass2, Named given, const std::vector<int> &sizes,
                  const GpuExtent &e, const std::string &name, mx::Stream s) {
    auto made =
        launch(pass1, e, sizes, given,
               {{e.nrows, e.row_nwords()}, {e.nrows}, {e.nrows}, {e.nrows, R4_KEPT}, {e.nrows}}, s);
    auto starts = scan(made[1], s);
    mx::eval(made[0], made[2], made[3], made[4], starts);
    if (has_fault(made[4], s)) refuse_codes(name);
    int nescapes = dimension(total_of(starts, s));
    given.insert({{"starts", starts}, {"masks", made[2]}, {"kept", made[3]}});
    auto placed =
        launch(pass2, e, sizes, given, {{e.nrows + 1, 2}, {std::max(nescapes, metal_few)}}, s);
    Arrays arrays{made[0], at_least(placed[0], metal_few, s), placed[1]};
    mx::eval(arrays);
    return arrays;
}

Arrays from_rice(const GpuStored &stored, const GpuExtent &e, mx::Stream s) {
    const auto &p = stored.parts;
    Named given{{"raw", p[BINADE_PART_RAW]},
                {"table", p[BINADE_PART_TABLE]},
                {"meta", p[BINADE_PART_META]},
                {"bits", p[BINADE_PART_CODES]},
                {"row_starts", p[BINADE_PART_TAIL]}};
    int nwords = dimension(p[BINADE_PART_CODES].size());
    return two_passes("r4_from_rice_1", "r4_from_rice_2", given, {e.ncols, e.nrows, nwords, e.base},
                      e, stored.name, s);
}

// Where each row's codes and escapes begin is not stored.
Arrays from_fixed(const GpuStored &stored, const GpuExtent &e, mx::Stream s) {
    const auto &p = stored.parts;
    int nwords = dimension(p[BINADE_PART_CODES].size());
    int nescapes = dimension(p[BINADE_PART_TAIL].size());
    Named given{{"raw", p[BINADE_PART_RAW]},
                {"table", p[BINADE_PART_TABLE]},
                {"meta", p[BINADE_PART_META]},
                {"idx", p[BINADE_PART_CODES]},
                {"esc", p[BINADE_PART_TAIL]}};
    auto widths =
        launch("r4_measure_fixed", e, {e.ncols, e.nrows}, given, {{e.nrows}, {e.nrows}}, s);
    given.insert({"code_starts", scan(widths[0], s)});
    auto counts =
        launch("r4_count_fixed", e, {e.ncols, e.nrows, nwords}, given, {{e.nrows}, {e.nrows}}, s);
    given.insert({"esc_starts", scan(counts[0], s)});
    if (has_fault(mx::maximum(widths[1], counts[1], s), s)) refuse_codes(stored.name);
    return two_passes("r4_from_fixed_1", "r4_from_fixed_2", given,
                      {e.ncols, e.nrows, nwords, nescapes, e.base}, e, stored.name, s);
}

} // namespace

Arrays metal_from_stored(const GpuStored &stored, const GpuExtent &e, mx::Stream s) {
    return stored.format == 2 ? from_rice(stored, e, s) : from_fixed(stored, e, s);
}

Arrays metal_from_bf16(const mx::array &bf16, const GpuExtent &e, mx::Stream s) {
    // Every weight may be an escape, and they are counted in 32 bits.
    if (bf16.size() > std::numeric_limits<uint32_t>::max())
        throw Error(BINADE_E_USAGE,
                    "a weight of more than 2^32 - 1 elements cannot be packed for a "
                    "GPU");
    return two_passes("r4_from_bf16_1", "r4_from_bf16_2", {{"weights", bf16}},
                      {e.ncols, e.nrows, e.base}, e, "a weight", s);
}

} // namespace binade
