// cuda_launch.h - runs kernels of src/cuda in MLX's CUDA stream, in the midst of its own.
//
// MLX exports no way to encode a kernel but its precompiled custom kernels, so a launch makes such
// a node and evaluates it at once. The kernels are compiled when they are first wanted, for the GPU
// at hand, by the run-time compiler that MLX brings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/gpu_driver.h"
#include "cuda/r4_gemm_grid.h"
#include "mlx/fast.h"
#include "mlx/r4_primitives.h"

namespace binade {

using Scalars = std::vector<mx::fast::ScalarArg>;

struct CudaLaunch {
    const char *kernel; // "binade_r4_matvec_1"
    Scalars scalars;
    r4_grid grid;
};

// Whether MLX's GPU is an NVIDIA one.
bool cuda_is_available();

// Throw std::runtime_error, in a sentence, where the driver does not tell.
const r4_device &cuda_device(mx::Stream s);
const gpu_facts &cuda_facts(mx::Stream s);

// The name of a kernel of src/cuda/r4_gemm.cu, r4_gemm_mma.cu or r4_skinny.cu, by the numbers in
// it.
const char *cuda_gemm_entry(const r4_gemm_kernel &k);

// To be called in eval_gpu: allocates the outputs and encodes the kernel. Inputs that are not
// row-contiguous are copied.
void cuda_run(const CudaLaunch &launch, mx::Stream s, const Arrays &inputs, Arrays outputs);

// The same as a node of the graph.
Arrays cuda_node(const CudaLaunch &launch, mx::Stream s, const Arrays &inputs,
                 const std::vector<mx::Shape> &shapes, const std::vector<mx::Dtype> &dtypes);

} // namespace binade
