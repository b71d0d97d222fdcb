// cuda_launch.cpp - see cuda_launch.h.
#include "mlx/cuda_launch.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>

#include "mlx/backend/cuda/cuda.h"
#include "mlx/r4_path.h"

extern "C" const gpu_sources gpu_sources; // cmake/embed.cmake makes them

namespace binade {

namespace {

// Where an entry point is, and what chooses it there.
struct Entry {
    const char *file;
    std::string defines;
};

using Entries = std::map<std::string, Entry>;

const Entries single_entries{
    {"binade_r4_matvec_1", {"cuda/r4_matvec.cu", "R4_NPARTS=1"}},
    {"binade_r4_matvec_2", {"cuda/r4_matvec.cu", "R4_NPARTS=2"}},
    {"binade_r4_matvec_3", {"cuda/r4_matvec.cu", "R4_NPARTS=3"}},
    {"binade_r4_matvec_normed_1", {"cuda/r4_matvec_normed.cu", "R4_NPARTS=1"}},
    {"binade_r4_matvec_normed_2", {"cuda/r4_matvec_normed.cu", "R4_NPARTS=2"}},
    {"binade_r4_matvec_normed_3", {"cuda/r4_matvec_normed.cu", "R4_NPARTS=3"}},
    {"binade_r4_matvec_gated_normed", {"cuda/r4_gated_normed.cu", "R4_NPARTS=2"}},
    {"binade_r4_matvec_any", {"cuda/r4_matvec_any.cu", ""}},
    {"binade_r4_gather_1", {"cuda/r4_gather.cu", "R4_NPARTS=1"}},
    {"binade_r4_gather_2", {"cuda/r4_gather.cu", "R4_NPARTS=2"}},
    {"binade_r4_matvec_added", {"cuda/r4_matvec_fused.cu", "R4_NPARTS=1"}},
    {"binade_r4_matvec_gated", {"cuda/r4_matvec_fused.cu", "R4_NPARTS=2"}},
    {"binade_r4_gather_gated", {"cuda/r4_gather_gated.cu", "R4_NPARTS=2"}},
    {"binade_r4_gather_any", {"cuda/r4_gather_any.cu", ""}},
    {"binade_r4_rows", {"cuda/r4_rows.cu", ""}},
    {"binade_r4_rebuild", {"cuda/r4_rebuild.cu", ""}},
    {"binade_r4_from_rice_1", {"cuda/r4_from_rice.cu", "R4_PASS=1"}},
    {"binade_r4_from_rice_2", {"cuda/r4_from_rice.cu", "R4_PASS=2"}},
    {"binade_r4_measure_fixed", {"cuda/r4_measure_fixed.cu", "R4_PASS=1"}},
    {"binade_r4_count_fixed", {"cuda/r4_measure_fixed.cu", "R4_PASS=2"}},
    {"binade_r4_from_fixed_1", {"cuda/r4_from_fixed.cu", "R4_PASS=1"}},
    {"binade_r4_from_fixed_2", {"cuda/r4_from_fixed.cu", "R4_PASS=2"}},
    {"binade_r4_from_bf16_1", {"cuda/r4_from_bf16.cu", "R4_PASS=1"}},
    {"binade_r4_from_bf16_2", {"cuda/r4_from_bf16.cu", "R4_PASS=2"}},
    {"binade_r4_count", {"cuda/r4_count.cu", ""}},
    {"binade_r4_scan", {"cuda/r4_scan.cu", ""}},
};

// R4_ORDER of r4_gemm_mma.cu, which counts as r4_gemm_way does.
unsigned order_of(const r4_gemm_kernel &k) {
    bool has_experts = k.nsplits == 0;
    return has_experts ? 0 : static_cast<unsigned>(k.way);
}

// A kernel for several rows of x.
std::string gemm_name(const r4_gemm_kernel &k) {
    if (k.way == R4_GEMM_SKINNY)
        return "binade_r4_skinny_" + std::to_string(k.nx) + "_" + std::to_string(k.per_lane) + "_" +
               std::to_string(k.nsplits);
    std::string name = "binade_r4_gemm";
    if (k.way == R4_GEMM_WGMMA)
        name.append("_").append(std::to_string(k.nx));
    else
        name.append("_mma");
    unsigned order = k.way == R4_GEMM_WGMMA ? k.nsplits : order_of(k);
    for (unsigned number : {k.per_lane, order, k.nparts})
        name.append("_").append(std::to_string(number));
    return name;
}

Entry gemm_entry(const r4_gemm_kernel &k) {
    std::string per_lane = " R4_PER_LANE=" + std::to_string(k.per_lane);
    std::string numbers = per_lane + " R4_NPARTS=" + std::to_string(k.nparts);
    std::string hopper =
        "R4_NX=" + std::to_string(k.nx) + " R4_NSPLITS=" + std::to_string(k.nsplits);
    if (k.way == R4_GEMM_SKINNY) return {"cuda/r4_skinny.cu", hopper + per_lane};
    if (k.way == R4_GEMM_WGMMA) return {"cuda/r4_gemm.cu", hopper + numbers};
    return {"cuda/r4_gemm_mma.cu", "R4_ORDER=" + std::to_string(order_of(k)) + numbers};
}

// And all kernels for several rows of x.
const Entries &all_entries() {
    static const Entries entries = [] {
        auto all = single_entries;
        auto add = [&](const r4_gemm_kernel &k) { all[gemm_name(k)] = gemm_entry(k); };
        for (unsigned per_lane : {2, 4}) {
            for (unsigned nx : {64, 128}) {
                for (unsigned nsplits = 0; nsplits <= R4_GEMM_NSPLITS_MOST; nsplits++)
                    add({nx, per_lane, nsplits, 1, {}, R4_GEMM_WGMMA});
                add({nx, per_lane, 0, 2, {}, R4_GEMM_WGMMA});
            }
            for (unsigned nx : {8, 16, 32})
                for (unsigned nsplits = 1; nsplits <= R4_GEMM_NSPLITS_MOST; nsplits++)
                    add({nx, per_lane, nsplits, 1, {}, R4_GEMM_SKINNY});
            for (unsigned nparts : {1, 2})
                add({64, per_lane, 0, nparts, {}, R4_GEMM_MMA});
            for (auto way : {R4_GEMM_MMA, R4_GEMM_MMA_SPLITS, R4_GEMM_MMA_TWO_SLICES})
                add({64, per_lane, 1, 1, {}, way});
        }
        return all;
    }();
    return entries;
}

struct Gpu {
    gpu_facts facts;
    r4_device device;
};

const Gpu &gpu_of(mx::Stream s) {
    static std::mutex lock;
    static std::map<int, Gpu> known;
    std::lock_guard guard(lock);
    auto found = known.find(s.device.index);
    if (found != known.end()) return found->second;
    Gpu gpu{};
    char message[GPU_MESSAGE_NBYTES];
    if (gpu_query(s.device.index, &gpu.facts, message)) throw std::runtime_error(message);
    gpu.device.nprocessors = static_cast<unsigned>(gpu.facts.nprocessors);
    gpu.device.shared_most = static_cast<unsigned>(gpu.facts.shared_most);
    return known.emplace(s.device.index, gpu).first->second;
}

// Eight bytes of the same hash: std::hash of libstdc++ is MurmurHash64A, each step of which can be
// undone. Nothing where it is another function.
std::optional<std::string> same_hash(const std::string &text) {
    constexpr uint64_t seed = 0xc70f6907, times = 0xc6a4a7935bd1e995, back = 0x5f7a0ea7e59b19bd;
    static_assert(times * back == 1, "modulo 2^64");
    auto mix = [](uint64_t v) { return v ^ (v >> 47); }; // undoes itself
    std::string eight(8, '\0');
    uint64_t v = std::hash<std::string>{}(text);
    v = (mix(mix(v) * back) * back) ^ seed ^ (eight.size() * times);
    v = mix(v * back) * back;
    std::memcpy(eight.data(), &v, eight.size());
    if (std::hash<std::string>{}(eight) != std::hash<std::string>{}(text)) return std::nullopt;
    return eight;
}

// The machine code of one kernel, and what stands for it once MLX knows it. At each launch MLX
// 0.32.2 hashes the code, some microseconds, to find what it made of it the first time; it looks
// for nothing but the kernel's name and this hash.
struct Code {
    std::string image, alias;
    std::atomic<bool> is_known = false;
};

Code &code_of(const char *kernel, const gpu_facts &facts) {
    static std::mutex lock;
    static std::map<std::pair<std::string, int>, Code> compiled;
    std::lock_guard guard(lock);
    auto &code = compiled[{kernel, facts.major * 10 + facts.minor}];
    if (!code.image.empty()) return code;
    const auto &entry = all_entries().at(kernel);
    char *image = nullptr, message[GPU_MESSAGE_NBYTES];
    size_t nbytes = 0;
    if (gpu_compile(&::gpu_sources, entry.file, entry.defines.c_str(), facts.major, facts.minor,
                    &image, &nbytes, message))
        throw std::runtime_error(message);
    code.image.assign(image, nbytes);
    std::free(image);
    code.alias = r4_mlx_is_proven() ? same_hash(code.image).value_or(code.image) : code.image;
    return code;
}

Arrays make_node(const CudaLaunch &launch, const std::string &code, mx::Stream s,
                 const Arrays &inputs, const std::vector<mx::Shape> &shapes,
                 const std::vector<mx::Dtype> &dtypes) {
    const auto &grid = launch.grid;
    auto nthreads = static_cast<int>(grid.nthreads);
    return mx::fast::precompiled_cuda_kernel(
        launch.kernel, code, inputs, shapes, dtypes, launch.scalars,
        {static_cast<int>(grid.nblocks) * nthreads, 1, 1}, {nthreads, 1, 1},
        static_cast<int>(grid.shared_nbytes), std::nullopt, true, s);
}

} // namespace

bool cuda_is_available() {
    return mx::cu::is_available();
}

const r4_device &cuda_device(mx::Stream s) {
    return gpu_of(s).device;
}

const gpu_facts &cuda_facts(mx::Stream s) {
    return gpu_of(s).facts;
}

const char *cuda_gemm_entry(const r4_gemm_kernel &k) {
    auto found = all_entries().find(gemm_name(k));
    if (found == all_entries().end()) throw std::logic_error("no such kernel");
    return found->first.c_str();
}

Arrays cuda_node(const CudaLaunch &launch, mx::Stream s, const Arrays &inputs,
                 const std::vector<mx::Shape> &shapes, const std::vector<mx::Dtype> &dtypes) {
    return make_node(launch, code_of(launch.kernel, gpu_of(s).facts).image, s, inputs, shapes,
                     dtypes);
}

// Nodes are made anew for each token, while what a launch is hardly changes: without this, MLX
// would copy the machine code each time.
void cuda_run(const CudaLaunch &launch, mx::Stream s, const Arrays &inputs, Arrays outputs) {
    using Key = std::tuple<const char *, unsigned, int, Scalars>;
    constexpr size_t most = 512; // launches are few, but for the lengths of prompts
    static thread_local std::map<Key, std::shared_ptr<mx::Primitive>> prepared;

    if (prepared.size() >= most) prepared.clear();
    auto &primitive = prepared[{launch.kernel, launch.grid.nblocks, s.index, launch.scalars}];
    if (primitive) return primitive->eval_gpu(inputs, outputs);
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (const auto &out : outputs) {
        shapes.push_back(out.shape());
        dtypes.push_back(out.dtype());
    }
    auto &code = code_of(launch.kernel, gpu_of(s).facts);
    auto run = [&](const std::string &text) {
        auto made = make_node(launch, text, s, inputs, shapes, dtypes)[0].primitive_ptr();
        made->eval_gpu(inputs, outputs);
        return made;
    };
    if (code.is_known) {
        primitive = run(code.alias);
    } else { // not kept: it would be hashed again
        run(code.image);
        code.is_known = true;
    }
}

} // namespace binade
