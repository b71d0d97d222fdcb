/* cublaslt_product.cuh - y = x W^T of BF16 by cublasLt, as MLX has it computed: the first plan of
 * its heuristic, with a workspace of 32 MiB. */
#ifndef BINADE_CUBLASLT_PRODUCT_CUH
#define BINADE_CUBLASLT_PRODUCT_CUH

#include <cublasLt.h>

#include "device_weight.cuh"

static inline void must_lt(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "%s: cublasLt's status %d\n", what, (int)status);
    exit(2);
}

/* W [n][k], x [m][k], y [m][n]. */
class lt_product {
  public:
    lt_product(uint64_t m, uint64_t n, uint64_t k) {
        const size_t workspace_nbytes = 32 << 20;
        const cublasOperation_t transposed = CUBLAS_OP_T;
        cublasLtMatmulPreference_t preference;
        int nplans = 0;
        must_lt(cublasLtCreate(&handle_), "handle");
        must_lt(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product");
        must_lt(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                               sizeof transposed),
                "transposed");
        must_lt(cublasLtMatrixLayoutCreate(&w_, CUDA_R_16BF, k, n, (int64_t)k), "layout");
        must_lt(cublasLtMatrixLayoutCreate(&x_, CUDA_R_16BF, k, m, (int64_t)k), "layout");
        must_lt(cublasLtMatrixLayoutCreate(&y_, CUDA_R_16BF, n, m, (int64_t)n), "layout");
        must_lt(cublasLtMatmulPreferenceCreate(&preference), "preference");
        must_lt(cublasLtMatmulPreferenceSetAttribute(preference,
                                                     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &workspace_nbytes, sizeof workspace_nbytes),
                "preference");
        must_lt(cublasLtMatmulAlgoGetHeuristic(handle_, product_, w_, x_, y_, y_, preference, 1,
                                               &plan_, &nplans),
                "plan");
        cublasLtMatmulPreferenceDestroy(preference);
        workspace_ = new_device<unsigned char>(plan_.workspaceSize);
    }
    lt_product(const lt_product &) = delete;
    ~lt_product() {
        cudaFree(workspace_);
        for (auto layout : {w_, x_, y_})
            cublasLtMatrixLayoutDestroy(layout);
        cublasLtMatmulDescDestroy(product_);
        cublasLtDestroy(handle_);
    }

    void run(const uint16_t *w, const uint16_t *x, uint16_t *y, cudaStream_t stream) const {
        const float one = 1, zero = 0;
        must_lt(cublasLtMatmul(handle_, product_, &one, w, w_, x, x_, &zero, y, y_, y, y_,
                               &plan_.algo, workspace_, plan_.workspaceSize, stream),
                "product");
    }

  private:
    cublasLtHandle_t handle_;
    cublasLtMatmulDesc_t product_;
    cublasLtMatrixLayout_t w_, x_, y_;
    cublasLtMatmulHeuristicResult_t plan_;
    unsigned char *workspace_;
};

#endif
