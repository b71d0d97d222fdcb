/* r4_lanes.metal - how Metal's kernels take R4: four neighbouring columns a lane, whatever K is, as
 * MLX's gemv does on Apple GPUs. Stands behind cuda/r4_gpu_layout.h.
 *
 * The text of a kernel is its files one after the other, as metal_kernels.c lists them; it has no
 * includes, and what MLX puts before it has opened the namespace metal.
 */

constant constexpr uint R4_LANE_NCOLS = 4;

/* In front of loops over arrays that are to stay in registers. */
#define R4_UNROLL _Pragma("clang loop unroll(full)")
