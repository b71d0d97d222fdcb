// cuda_gemm.cpp - see cuda_gemm.h.
#include "mlx/cuda_gemm.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <tuple>

#include "cuda/gemm_table.h"
#include "cuda/r4_gemm_grid.h"
#include "mlx/cuda_launch.h"
#include "mlx/ops.h"
#include "mlx/r4_operand.h"
#include "mlx/r4_path.h"
#include "mlx/version.h"

namespace binade {

namespace {

constexpr int x_alignment = 16; // bytes that a copy of x takes at once

mx::Stream gpu_stream() {
    return mx::default_stream(mx::Device::gpu);
}

// ---- Plans --------------------------------------------------------------------------------------

// Where libmlx is: cuBLASLt is found as MLX finds it.
std::string mlx_folder() {
    Dl_info found;
    if (!dladdr(reinterpret_cast<void *>(&mx::version), &found) || !found.dli_fname) return "";
    std::string path = found.dli_fname;
    auto slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
}

struct Planner {
    gemm_planner *planner = nullptr;
    std::string why; // there is none
};

const Planner &planner() {
    static const Planner opened = [] {
        Planner p;
        char message[GPU_MESSAGE_NBYTES];
        auto folder = mlx_folder();
        if (gemm_planner_open(folder.empty() ? nullptr : folder.c_str(),
                              cuda_facts(gpu_stream()).major, &p.planner, message))
            p.why = message;
        return p;
    }();
    return opened;
}

// The plan, or why there is none.
std::optional<gemm_plan> ask_plan(int m, int n, int k, std::string &why) {
    char message[GPU_MESSAGE_NBYTES];
    gemm_plan plan;
    why = planner().why;
    if (!planner().planner) return std::nullopt;
    if (gemm_planner_ask(planner().planner, m, n, k, &plan, message)) {
        why = message;
        return std::nullopt;
    }
    return plan;
}

const gemm_row *find_row(const gemm_plan &plan, int k, std::string &why) {
    char message[GPU_MESSAGE_NBYTES];
    const auto &facts = cuda_facts(gpu_stream());
    const auto *row = gemm_find_row(facts.major, facts.minor, &plan, k, message);
    if (!row) why = message;
    return row;
}

std::string describe(const gemm_plan &plan) {
    std::ostringstream text;
    text << "algorithm " << plan.algorithm;
    if (plan.nsplits > 1) text << " in " << plan.nsplits << " splits, reduction " << plan.reduction;
    return text.str();
}

// ---- Kernels ------------------------------------------------------------------------------------

// Kernels by mma.sync on BF16 begin with 8.0.
bool has_tensor_cores() {
    return cuda_facts(gpu_stream()).major >= 8;
}

// Kernels with clusters are for 9.0 alone.
bool is_hopper() {
    const auto &facts = cuda_facts(gpu_stream());
    return facts.major == 9 && facts.minor == 0;
}

// By what kernels a plan's order is kept.
R4GemmOrder order_of(const gemm_row &row, const gemm_plan &plan) {
    R4GemmOrder order;
    order.nsplits = plan.nsplits > 1 ? plan.nsplits : 1;
    order.reduction = order.nsplits > 1 ? plan.reduction : GEMM_REDUCTION_NONE;
    bool is_plain = order.nsplits == 1 || (order.reduction == GEMM_REDUCTION_FP32 &&
                                           order.nsplits <= R4_GEMM_NSPLITS_MOST);
    if (row.order == GEMM_TWO_SLICES)
        order.way = R4_GEMM_MMA_TWO_SLICES;
    else if (is_hopper() && is_plain)
        order.way = R4_GEMM_WGMMA;
    else
        order.way = order.nsplits > 1 ? R4_GEMM_MMA_SPLITS : R4_GEMM_MMA;
    return order;
}

struct Kernel {
    r4_gemm_kernel numbers;
    r4_grid grid;
};

// R4_GEMM_WGMMA stands for an order, which kernels for few rows of x have too.
std::optional<Kernel> find_kernel(r4_gemm_product product, mx::Stream s) {
    Kernel kernel;
    if (product.way == R4_GEMM_WGMMA && product.nexperts == 0)
        product.way = r4_gemm_hopper_way(product.nx);
    if (!r4_gemm_grid(&cuda_device(s), &product, &kernel.numbers, &kernel.grid))
        return std::nullopt;
    return kernel;
}

r4_gemm_product product_of(int m, int n, int k, const R4GemmOrder &order) {
    r4_gemm_product product{};
    product.nx = static_cast<unsigned>(m);
    product.taken = static_cast<unsigned>(n);
    product.ncols = static_cast<unsigned>(k);
    product.nparts = 1;
    product.nsplits = static_cast<unsigned>(order.nsplits);
    product.way = static_cast<r4_gemm_way>(order.way);
    return product;
}

// Of as many rows of each of nparts weights.
r4_gemm_product experts_of(int m, int n, int k, int nexperts, size_t nparts,
                           const R4GemmOrder &order) {
    auto product = product_of(m, n, k, order);
    product.nexperts = static_cast<unsigned>(nexperts);
    product.nparts = static_cast<unsigned>(nparts);
    return product;
}

int rows_of(const mx::array &x) {
    return static_cast<int>(x.size() / static_cast<size_t>(x.shape(-1)));
}

// What was taken for granted when the node was made.
void check_place(const mx::array &x, const char *operation) {
    bool begins_odd = x.offset() % x_alignment != 0 && x.flags().row_contiguous;
    if (begins_odd || (x.strides(-1) != 1 && x.shape(-1) > 1))
        throw std::runtime_error(
            std::string("[") + operation +
            "] x lies at an odd place, or not by rows: no kernel serves that.");
}

// scalars: those before the shape.
void run(const Kernel &kernel, Scalars scalars, const std::vector<CudaPart> &parts, mx::Stream s,
         const Arrays &inputs, const Arrays &outputs) {
    int shape[R4_GEMM_SHAPE_MOST];
    scalars.insert(scalars.end(), shape, shape + r4_gemm_list_shape(&kernel.numbers, shape));
    for (const auto &p : parts) {
        scalars.insert(scalars.end(), {p.row0, p.rows});
        if (kernel.numbers.nsplits == 0) scalars.push_back(p.block_rows);
        scalars.push_back(p.base);
    }
    cuda_run({cuda_gemm_entry(kernel.numbers), std::move(scalars), kernel.grid}, s, inputs,
             outputs);
}

Kernel must_find(const r4_gemm_product &product, mx::Stream s, const char *operation) {
    auto kernel = find_kernel(product, s);
    if (!kernel)
        throw std::runtime_error(std::string("[") + operation +
                                 "] This GPU has no kernel for such a product.");
    return *kernel;
}

// Plans are asked for on the first GPU.
bool can_take(const mx::array &x, mx::Stream s) {
    return s.device.index == 0 && !x.is_tracer() && will_lie_by_rows(x, x_alignment);
}

// Whether the rows of x [..., 1, K] will be K apart by its strides too: those of a dimension of one
// can be anything behind expand_dims, and MLX's grouped product believes them.
bool has_usual_strides(const mx::array &x) {
    if (is_evaluated(x)) return x.strides(-2) == x.shape(-1);
    std::string_view name = x.primitive().name();
    return name != "ExpandDims" && name != "Squeeze" && name != "Unflatten" && name != "Transpose";
}

} // namespace

// ---- Choices ------------------------------------------------------------------------------------

static CudaGemmChoice choose(int m, int n, int k, const gemm_plan &plan) {
    std::string why;
    const auto *row = find_row(plan, k, why);
    if (!row) return {false, {}, why};
    if (!gemm_row_is_allowed(row))
        return {false, {}, std::string(row->proof) + ": BINADE_GEMM_ROW=published turns it on"};
    auto order = order_of(*row, plan);
    if (is_hopper() && order.nsplits > R4_GEMM_NSPLITS_MOST && !gemm_row_is_asked_for())
        return {
            false, {}, "more splits of K than were compared with cublasLt's: " + describe(plan)};
    if (!find_kernel(product_of(m, n, k, order), gpu_stream()))
        return {false, {}, "no kernel has this shape: " + describe(plan)};
    return {true, order, "in cublasLt's order: " + describe(plan)};
}

CudaGemmChoice cuda_gemm_choice(int m, int n, int k) {
    constexpr size_t most = 4096;
    static std::mutex lock;
    static std::map<std::tuple<int, int, int>, CudaGemmChoice> known;
    std::string why;
    if (!has_tensor_cores()) return {false, {}, "this GPU has no tensor cores for BF16"};
    if (m > R4_GEMM_NX_MOST)
        return {false, {}, "with so many rows rebuilding is taken to be faster"};
    std::lock_guard guard(lock);
    auto found = known.find({m, n, k});
    if (found != known.end()) return found->second;
    auto plan = ask_plan(m, n, k, why);
    if (!plan) return {false, {}, why};
    if (known.size() >= most) known.clear();
    return known[{m, n, k}] = choose(m, n, k, *plan);
}

CudaGemmChoice cuda_experts_choice(int n, int k, int nexperts) {
    const char *tf32 = std::getenv("MLX_ENABLE_TF32");
    R4GemmOrder order;
    if (!has_tensor_cores()) return {false, {}, "this GPU has no tensor cores for BF16"};
    if (tf32 && std::atoi(tf32) == 0)
        return {false, {}, "MLX adds without tensor cores, as MLX_ENABLE_TF32 is 0"};
    if (!is_hopper() && !gemm_row_is_asked_for())
        return {
            false, {}, "compared with MLX's CUTLASS on Hopper only: BINADE_GEMM_ROW turns it on"};
    order.way = is_hopper() ? R4_GEMM_WGMMA : R4_GEMM_MMA;
    if (!find_kernel(experts_of(1, n, k, nexperts, 1, order), gpu_stream()))
        return {false, {}, "no kernel has this shape; MLX multiplies sorted experts by CUTLASS"};
    return {true, order, "sorted experts, as MLX by CUTLASS: steps in order"};
}

std::string cuda_gemm_plan_text(int m, int n, int k) {
    std::string why;
    auto plan = ask_plan(m, n, k, why);
    if (!plan) return why;
    const auto *row = find_row(*plan, k, why);
    return describe(*plan) + (row ? std::string("; proof: ") + row->proof : "; " + why);
}

// ---- Nodes --------------------------------------------------------------------------------------

std::optional<mx::array> cuda_gemm(const mx::array &x, const R4Weight &w, const R4GemmOrder &order,
                                   mx::Stream s) {
    if (!can_take(x, s)) return std::nullopt;
    auto shape = x.shape();
    shape.back() = w.rows;
    return mx::array(std::move(shape), mx::bfloat16,
                     std::make_shared<CudaGemm>(s, cuda_parts_of({w}), order), with_weight({x}, w));
}

std::optional<Arrays> cuda_gemm_experts(const mx::array &x, const std::vector<R4Weight> &weights,
                                        const mx::array &indices, const R4GemmOrder &order,
                                        mx::Stream s) {
    if (indices.size() == 0 || items_per_batch(x, indices) != 1 || !can_take(x, s) ||
        !has_usual_strides(x) || indices.is_tracer())
        return std::nullopt;
    if (weights.size() > cuda_gather_most) return std::nullopt;
    Arrays inputs{x, mx::contiguous(mx::astype(indices, mx::uint32, s), false, s)};
    for (const auto &w : weights) {
        if (w.rows != weights[0].rows) return std::nullopt;
        inputs = with_weight(std::move(inputs), w);
    }
    auto shape = indices.shape();
    shape.insert(shape.end(), {1, weights[0].rows});
    auto primitive = std::make_shared<CudaGemmExperts>(s, cuda_parts_of(weights), order);
    return mx::array::make_arrays(std::vector<mx::Shape>(weights.size(), shape),
                                  std::vector<mx::Dtype>(weights.size(), mx::bfloat16), primitive,
                                  inputs);
}

std::vector<mx::Shape> CudaGemm::output_shapes(const Arrays &inputs) {
    auto shape = inputs[0].shape();
    shape.back() = parts_[0].rows;
    return {shape};
}

bool CudaGemm::is_equivalent(const Primitive &other) const {
    return CudaPrimitive::is_equivalent(other) &&
           order_ == static_cast<const CudaGemm &>(other).order_;
}

void CudaGemm::eval_gpu(const Arrays &inputs, Arrays &outputs) {
    const auto &x = inputs[0];
    const auto &p = parts_[0];
    int m = rows_of(x);
    check_place(x, "r4_matmul");
    auto kernel = must_find(product_of(m, p.rows, p.cols, order_), stream(), "r4_matmul");
    Scalars scalars{m, p.cols, gemm_split_ncols(p.cols, order_.nsplits)};
    if (!r4_gemm_has_clusters(kernel.numbers.way)) scalars.push_back(order_.reduction);
    run(kernel, scalars, parts_, stream(), {inputs[1], inputs[2], inputs[3], x}, outputs);
    r4_count("matmul", "gemm", m, p.rows, p.cols);
}

bool CudaGemmExperts::is_equivalent(const Primitive &other) const {
    return CudaPrimitive::is_equivalent(other) &&
           order_ == static_cast<const CudaGemmExperts &>(other).order_;
}

std::vector<mx::Shape> CudaGemmExperts::output_shapes(const Arrays &inputs) {
    auto shape = inputs[1].shape();
    shape.insert(shape.end(), {1, parts_[0].rows});
    return std::vector<mx::Shape>(parts_.size(), shape);
}

void CudaGemmExperts::eval_gpu(const Arrays &inputs, Arrays &outputs) {
    const auto &x = inputs[0];
    const auto &p = parts_[0];
    int nx = static_cast<int>(inputs[1].size());
    check_place(x, "r4_gather_mm");
    if (x.strides(-2) != p.cols && nx > 1)
        throw std::runtime_error(
            "[r4_gather_mm] The rows of x are not as far apart as they are long.");
    auto kernel = must_find(experts_of(nx, p.rows, p.cols, p.experts, parts_.size(), order_),
                            stream(), "r4_gather_mm");
    Arrays arrays(inputs.begin() + 2, inputs.end());
    arrays.insert(arrays.end(), {x, inputs[1]});
    run(kernel, {nx, p.cols, p.experts}, parts_, stream(), arrays, outputs);
    for (size_t i = 0; i < parts_.size(); i++)
        r4_count("gather_mm", "gemm", nx, p.rows, p.cols);
}

} // namespace binade
