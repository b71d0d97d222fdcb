/* r4_gemm_arguments.cuh - what the parameters of r4_gemm.cu and r4_gemm_mma.cu have in common, by
 * R4_HAS_EXPERTS. Without a guard, as these files are included once for each kernel. */
#if R4_HAS_EXPERTS
#define R4_GEMM_INDICES const unsigned *indices,
#define R4_PART_ROWS(I) , int row0_##I, int nrows##I, int block_nrows##I, int base##I
#define R4_PART_BLOCK(I) (unsigned)block_nrows##I
#else
#define R4_GEMM_INDICES
#define R4_PART_ROWS(I) , int row0_##I, int nrows##I, int base##I
#define R4_PART_BLOCK(I) 0
#endif
#define R4_PART(I)                                                                                 \
    {slices##I,          rows##I,           escapes##I,      y##I, (unsigned)row0_##I,             \
     (unsigned)nrows##I, (unsigned)base##I, R4_PART_BLOCK(I)},
