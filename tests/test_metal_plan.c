/* test_metal_plan.c - how our kernels for Apple GPUs are launched, and which weights share a
 * launch. tests/metal launches them so.
 */
#include <string.h>

#include "check.h"
#include "metal/metal_kernels.h"
#include "metal/metal_plan.h"

static const struct metal_gpu m4 = {16, 'g', false}, m5_max = {17, 's', true};

static struct metal_product shape(int64_t m, int64_t n, int64_t k) {
    return (struct metal_product){.m = m, .n = n, .k = k, .batch = 1, .is_aligned = true};
}

static void test_sharing(void) {
    const int qkv[] = {4096, 1024, 1024}, gate_up[] = {14336, 14336}, uneven[] = {4096, 256};
    const int narrow[] = {64, 4096};
    struct metal_product p = shape(1, 0, 4096);
    CHECK(metal_may_share(&m4, &p, qkv, 3), "q, k, v of one row");
    CHECK(metal_may_share(&m4, &p, gate_up, 2), "gate, up of one row");
    CHECK(!metal_may_share(&m4, &p, uneven, 2), "K >= 16 N for one of them");
    p.m = 6;
    CHECK(metal_may_share(&m4, &p, qkv, 3), "q, k, v of six rows");
    CHECK(!metal_may_share(&m4, &p, narrow, 2), "32 lanes and 16");
    p.m = 64;
    CHECK(!metal_may_share(&m4, &p, qkv, 3), "split along K, each for itself");
    CHECK(metal_may_share(&m4, &p, gate_up, 2), "gate, up of many rows");
    CHECK(!metal_may_share(&m5_max, &p, gate_up, 2), "none are served");
}

static void test_plans(void) {
    const int qkv[] = {4096, 1024, 1022}, one[] = {4096}, few[] = {30};
    struct metal_plan plans[2];
    struct metal_product p = shape(1, 0, 4096);
    CHECK(metal_plan_matmul(&m4, &p, qkv, 3, plans) == 1, "one launch");
    CHECK(strcmp(plans[0].kernel, "r4_matvec_3") == 0 && plans[0].grid[0] == 1536 * 32 &&
              plans[0].threadgroup[0] == 256 && plans[0].nvalues == 1 && plans[0].values[0] == 0 &&
              plans[0].nsizes == 1 && plans[0].sizes[0] == 4096,
          "%s: grid %d", plans[0].kernel, plans[0].grid[0]);
    p.m = 32;
    CHECK(metal_plan_matmul(&m4, &p, one, 1, plans) == 2, "two launches");
    CHECK(strcmp(plans[0].kernel, "r4_gemm_split") == 0 && plans[0].sizes[2] == 2 &&
              plans[0].sizes[3] == 2048 && plans[0].grid[2] == 2,
          "split in %d", plans[0].sizes[2]);
    CHECK(strcmp(plans[1].kernel, "r4_add_splits") == 0 && plans[1].grid[0] == 4096 &&
              plans[1].grid[1] == 32,
          "adding: %d x %d", plans[1].grid[0], plans[1].grid[1]);
    p = shape(1, 0, 64);
    CHECK(metal_plan_matmul(&m4, &p, few, 1, plans) == 1 &&
              strcmp(plans[0].kernel, "r4_matvec_short") == 0 && plans[0].grid[0] == 128,
          "%s: grid %d", plans[0].kernel, plans[0].grid[0]);
    p.k = 512;
    CHECK(metal_plan_matmul(&m4, &p, few, 1, plans) == 1 &&
              strcmp(plans[0].kernel, "r4_matvec_long") == 0 && plans[0].grid[0] == 8 * 256,
          "%s: grid %d", plans[0].kernel, plans[0].grid[0]);
    p = shape(64, 0, 4096);
    CHECK(metal_plan_matmul(&m5_max, &p, one, 1, plans) == 0, "rebuilt");
}

/* Every plan is one of a kernel that there is, with as many template arguments as it has. */
static void check_plan(const struct metal_plan *plan) {
    const struct metal_kernel *kernel = metal_find_kernel(plan->kernel);
    int nparameters = 0;

    CHECK(kernel != NULL, "there is no %s", plan->kernel);
    if (!kernel) return;
    while (kernel->parameters[nparameters])
        nparameters++;
    CHECK(plan->nvalues == nparameters, "%s: %d template arguments, not %d", plan->kernel,
          plan->nvalues, nparameters);
    CHECK(plan->nsizes > 0 && plan->nsizes < 8, "%s: %d sizes", plan->kernel, plan->nsizes);
    for (int d = 0; d < 3; d++)
        CHECK(plan->grid[d] > 0 && plan->threadgroup[d] > 0, "%s: an empty grid", plan->kernel);
    CHECK(plan->threadgroup[0] * plan->threadgroup[1] * plan->threadgroup[2] <= 1024,
          "%s: too many threads", plan->kernel);
}

static void test_all(void) {
    static const int64_t ms[] = {1, 2, 6, 15, 16, 33, 64, 200, 5000};
    static const int64_t ks[] = {8, 64, 100, 640, 4096, 14336};
    static const int ns[] = {8, 40, 704, 4096, 128256};
    struct metal_plan plans[2];

    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 6; j++)
            for (int l = 0; l < 5; l++) {
                struct metal_product p = shape(ms[i], 0, ks[j]);
                int n = metal_plan_matmul(&m4, &p, &ns[l], 1, plans);
                CHECK(n > 0, "%lld x %d x %lld is rebuilt", (long long)p.m, ns[l], (long long)p.k);
                for (int k = 0; k < n; k++)
                    check_plan(&plans[k]);
                struct metal_items items = {1, ns[l], ks[j], i % 2 == 0, true};
                CHECK(metal_plan_gather(&m4, &items, 64, (int)ms[i], 128, 8, &ns[l], 1, plans) == 1,
                      "experts of %d x %lld are rebuilt", ns[l], (long long)ks[j]);
                check_plan(&plans[0]);
            }
    metal_plan_rebuild("r4_rebuild", 4096, 14336, plans);
    check_plan(plans);
    metal_plan_scan(100000, plans);
    check_plan(plans);
}

int main(void) {
    test_sharing();
    test_plans();
    test_all();
    return check_end();
}
