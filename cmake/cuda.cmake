# R4 on a GPU: its kernels, their tests and their benchmark, which need a toolkit (nvcc 12 or later)
# but no MLX. They stand alone, so that they run on a machine that has only a driver.
#
#   cmake -S . -B build/gpu -DBINADE_CUDA=ON && cmake --build build/gpu
#   build/gpu/test_cuda_matvec large && build/gpu/bench_cuda > bench/results/cuda.json
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 89 90a 100 120)
endif()
enable_language(CXX CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

add_library(binade_cuda STATIC src/cuda/r4_launch.cu src/cuda/r4_launch_normed.cu
            src/cuda/r4_launch_gemm.cu src/cuda/r4_grid.c src/cuda/r4_gemm_grid.c
            src/cuda/r4_skinny_grid.c src/cuda/gpu_driver.c src/cuda/gemm_plan.c
            src/cuda/gemm_table.c src/cuda/r4_gpu_plain.c src/cuda/r4_mma_plain.c
            src/format/fixed.c src/format/rice.c src/format/rank_table.c)
target_include_directories(binade_cuda PUBLIC src tests/cuda)
# Products must round before they add wherever the code does not fuse them itself.
target_compile_options(binade_cuda PUBLIC
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -Xcompiler=-Wall>)
if(NOT APPLE)
    target_link_libraries(binade_cuda PUBLIC m ${CMAKE_DL_LIBS} Threads::Threads)
endif()

foreach(program tests/cuda/test_cuda_matvec tests/cuda/test_cuda_gather tests/cuda/test_cuda_fused
        tests/cuda/test_cuda_gemm tests/cuda/test_cuda_gemm_lt tests/cuda/test_cuda_gemm_mma
        tests/cuda/test_cuda_load tests/cuda/test_cuda_rows
        bench/bench_cuda bench/bench_cuda_gemm)
    get_filename_component(name ${program} NAME)
    add_executable(${name} ${program}.cu)
    target_link_libraries(${name} PRIVATE binade_cuda)
endforeach()

# Products are compared with those of the library itself.
find_package(CUDAToolkit REQUIRED)
foreach(name test_cuda_gemm_lt bench_cuda_gemm)
    target_link_libraries(${name} PRIVATE CUDA::cublasLt)
endforeach()
