// r4_path.cpp - see r4_path.h.
#include "mlx/r4_path.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <tuple>

#include "mlx/cuda_gemm.h"
#include "mlx/r4_metal.h"
#include "mlx/version.h"

namespace binade {

// ---- Rebuilding --------------------------------------------------------------------------------

static bool is_set(const char *variable) {
    const char *value = std::getenv(variable);
    return value && *value && std::string(value) != "0";
}

static std::atomic<bool> &rebuild_is_forbidden() {
    static std::atomic<bool> forbidden{is_set("BINADE_FORBID_REBUILD")};
    return forbidden;
}

void r4_forbid_rebuild(bool forbid) {
    rebuild_is_forbidden() = forbid;
}

void r4_check_may_rebuild() {
    if (rebuild_is_forbidden())
        throw std::runtime_error(
            "[r4_rebuild] Rebuilding is forbidden here, and no kernel serves this product.");
}

// ---- Trust -------------------------------------------------------------------------------------

static std::mutex lock;
static std::set<std::string> distrusted;

void r4_distrust(const std::string &kernel) {
    std::lock_guard guard(lock);
    distrusted.insert(kernel);
}

bool r4_is_trusted(const std::string &kernel) {
    std::lock_guard guard(lock);
    return !distrusted.contains(kernel);
}

bool r4_mlx_is_proven() {
    static const bool proven = std::string(mx::version()) == "0.32.2";
    return proven;
}

// On macOS MLX's CPU backend calls Apple's products, whose order is not known.
static bool mlx_is_proven_on(R4Layout layout) {
#ifdef __APPLE__
    if (layout == R4Layout::cpu) return false;
#else
    (void)layout;
#endif
    return r4_mlx_is_proven();
}

// ---- Paths -------------------------------------------------------------------------------------

// What holds for every kernel; an empty kernel means that nothing speaks against one.
static R4Path common_path(const R4Case &c, const char *kernel) {
    if (!mlx_is_proven_on(c.layout))
        return {"rebuild",
                std::string("the order of MLX ") + mx::version() + " on this system is not proven",
                false};
    if (!c.is_bf16)
        return {"rebuild", "x is not BF16, so MLX's rules for other dtypes hold",
                c.layout != R4Layout::cpu};
    if (!r4_is_trusted(kernel)) return {"rebuild", "its self-check failed on this machine", false};
    return {"", ""};
}

// What the kernels for Apple GPUs choose, as a kernel's name and their reason.
static R4Path metal_path(enum metal_ours kernel, const char *why) {
    switch (kernel) {
    case METAL_OURS_REBUILD:
        return {"rebuild", why};
    case METAL_OURS_GATHER:
        return {"gather", why};
    case METAL_OURS_WIDE:
        return {"wide", why};
    case METAL_OURS_GEMM:
    case METAL_OURS_GEMM_SPLIT:
    case METAL_OURS_GEMM_EXPERTS:
        return {"gemm", why};
    default:
        return {"matvec", why};
    }
}

static R4Path if_trusted(R4Path path) {
    if (path.kernel == "rebuild" || r4_is_trusted(path.kernel)) return path;
    return {"rebuild", "its self-check failed on this machine", false};
}

R4Path r4_matmul_path(const R4Case &c) {
    if (c.layout == R4Layout::metal) {
        auto common = common_path(c, "");
        if (!common.kernel.empty()) return common;
        auto product = metal_product_of(c.nrows, c.cols, c.has_bias);
        product.n = c.rows;
        auto choice = metal_matmul_choice(&metal_device(), &product);
        return if_trusted(metal_path(choice.kernel, choice.why));
    }
    bool on_cpu = c.layout == R4Layout::cpu;
    auto path = common_path(c, on_cpu ? "cpu" : c.nrows == 1 ? "matvec" : "");
    if (!path.kernel.empty()) return path;
    if (on_cpu) return {"cpu", "one chain for each output, as MLX's CPU backend"};
    if (c.has_bias) return {"rebuild", "MLX adds a bias inside cublasLt"};
    if (c.nrows == 1) return {"matvec", "one row of x, in the order of MLX's gemv"};
    if (c.nrows == 0) return {"rebuild", "there is nothing to multiply"};
    auto choice = cuda_gemm_choice(c.nrows, c.rows, c.cols);
    return if_trusted({choice.has_kernel ? "gemm" : "rebuild", choice.why, true, choice.order});
}

R4Path r4_gather_path(const R4Case &c) {
    if (c.layout == R4Layout::metal) {
        auto common = common_path(c, "");
        if (!common.kernel.empty()) return common;
        metal_items items{c.nrows, c.rows, c.cols, c.is_sorted, true};
        auto choice = metal_gather_choice(&metal_device(), &items);
        return if_trusted(metal_path(choice.kernel, choice.why));
    }
    bool on_cpu = c.layout == R4Layout::cpu;
    auto path = common_path(c, on_cpu ? "cpu" : c.is_sorted || c.nrows != 1 ? "" : "gather");
    if (!path.kernel.empty()) return path;
    if (on_cpu) return {"cpu", "one chain for each output, as MLX's CPU backend"};
    if (c.nrows != 1) return {"rebuild", "MLX multiplies several rows of an item by tensor cores"};
    if (c.is_sorted) {
        auto choice = cuda_experts_choice(c.rows, c.cols, c.experts);
        return if_trusted({choice.has_kernel ? "gemm" : "rebuild", choice.why, true, choice.order});
    }
    return {"gather", "one row of x for each expert, in the order of MLX's gather_mv"};
}

// ---- What has run ------------------------------------------------------------------------------

// By address: names are literals, and one that has two is put together when it is asked for.
using Key = std::tuple<const char *, const char *, int, int, int>;
static std::map<Key, uint64_t> served;

void r4_count(const char *operation, const char *kernel, int nrows, int rows, int cols) {
    std::lock_guard guard(lock);
    served[{operation, kernel, nrows, rows, cols}]++;
}

std::vector<R4Served> r4_served() {
    std::map<std::tuple<std::string, std::string, int, int, int>, uint64_t> sums;
    std::lock_guard guard(lock);
    for (const auto &[key, count] : served)
        sums[key] += count;
    std::vector<R4Served> all;
    for (const auto &[key, count] : sums) {
        const auto &[operation, kernel, nrows, rows, cols] = key;
        all.push_back({operation, kernel, nrows, rows, cols, count});
    }
    return all;
}

R4Counts r4_counts() {
    std::map<std::string, uint64_t> sums;
    for (const auto &s : r4_served())
        sums[s.operation] += s.count;
    return {sums["matmul"], sums["gather_mm"], sums["rows"], sums["rebuild"]};
}

void r4_reset_counts() {
    std::lock_guard guard(lock);
    served.clear();
}

} // namespace binade
