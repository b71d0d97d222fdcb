# The MLX operations: libbinade_mlx, for C++, and the Python module binade.mlx._ops.
#
#   cmake -S . -B build/ops -DBINADE_MLX=ON -DPython_EXECUTABLE=$PWD/build/mlx/bin/python
#   cmake --build build/ops
#   PYTHONPATH=build/ops/package build/mlx/bin/python -c "import binade.mlx"
#
# build/ops/package/binade is the package as pip would install it, its Python files linked to
# python/binade: edits count at once, a new file or folder after another cmake --build.
#
# That Python needs mlx and nanobind in the versions of pyproject.toml: arrays pass between MLX's
# module and this one only if both were made with the same nanobind and for the same Python.
#
# One build serves each of MLX's backends, as they share a library name and what is used of it:
# beside an installed binade lies mlx/lib, of whichever backend.
enable_language(CXX)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

# What `python -m MODULE OPTION` prints, in `variable`.
function(ask_python variable module option)
    execute_process(COMMAND "${Python_EXECUTABLE}" -m ${module} ${option}
                    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE
                    ERROR_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${Python_EXECUTABLE} has no ${module}, which BINADE_MLX needs")
    endif()
    set(${variable} "${answer}" PARENT_SCOPE)
endfunction()

ask_python(mlx_dir mlx --cmake-dir)
ask_python(nanobind_dir nanobind --cmake_dir)
find_package(MLX CONFIG REQUIRED PATHS "${mlx_dir}" NO_DEFAULT_PATH)
find_package(nanobind CONFIG REQUIRED PATHS "${nanobind_dir}" NO_DEFAULT_PATH)

if(APPLE)
    set(origin "@loader_path")
else()
    set(origin "$ORIGIN")
endif()

# Of binade_flags what C++ can take: a product rounds before it is added.
set(mlx_cxx_flags -Wall -Wextra -ffp-contract=off $<$<BOOL:${BINADE_WERROR}>:-Werror>)

file(GLOB mlx_sources CONFIGURE_DEPENDS src/mlx/*.cpp)
list(REMOVE_ITEM mlx_sources "${PROJECT_SOURCE_DIR}/src/mlx/r4_binding.cpp")
# Device code is compiled when it is first wanted, so its text travels inside the library.
file(GLOB device_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src" src/cuda/*.cu
     src/cuda/*.cuh src/cuda/r4_gpu_layout.h src/cuda/r4_gemm_shape.h
     src/metal/*.metal src/metal/bodies/*.metal)
list(FILTER device_files EXCLUDE REGEX "r4_launch")
list(TRANSFORM device_files PREPEND "${PROJECT_SOURCE_DIR}/src/" OUTPUT_VARIABLE device_paths)
add_custom_command(OUTPUT gpu_sources.c
                   COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}/src" -DOUT=gpu_sources.c
                           -P "${PROJECT_SOURCE_DIR}/cmake/embed.cmake" ${device_files}
                   DEPENDS ${device_paths} "${PROJECT_SOURCE_DIR}/cmake/embed.cmake" VERBATIM)
add_library(binade_mlx SHARED ${mlx_sources} src/cuda/gpu_driver.c src/cuda/r4_grid.c
            src/cuda/r4_gemm_grid.c src/cuda/r4_skinny_grid.c src/cuda/gemm_plan.c
            src/cuda/gemm_table.c src/cuda/r4_gpu_plain.c src/metal/metal_kernels.c
            src/metal/metal_plan.c src/metal/metal_rules.c "${CMAKE_CURRENT_BINARY_DIR}/gpu_sources.c")
target_compile_features(binade_mlx PUBLIC cxx_std_20)
target_compile_options(binade_mlx PRIVATE ${mlx_cxx_flags})
target_include_directories(binade_mlx PRIVATE src)
target_link_libraries(binade_mlx PUBLIC binade mlx PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(binade_mlx PROPERTIES CXX_VISIBILITY_PRESET hidden
                      C_VISIBILITY_PRESET hidden CXX_EXTENSIONS OFF
                      VISIBILITY_INLINES_HIDDEN ON)

nanobind_add_module(binade_mlx_ops NB_STATIC NB_DOMAIN mlx src/mlx/r4_binding.cpp)
target_compile_options(binade_mlx_ops PRIVATE ${mlx_cxx_flags})
target_include_directories(binade_mlx_ops PRIVATE src)
target_link_libraries(binade_mlx_ops PRIVATE binade_mlx)
set_target_properties(binade_mlx_ops PROPERTIES OUTPUT_NAME _ops)

# ---- The package in the build tree ----------------------------------------------------------------

set(package "${PROJECT_BINARY_DIR}/package/binade")
set_target_properties(binade_mlx PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package}")
set_target_properties(binade_mlx_ops PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package}/mlx")
file(GLOB_RECURSE python_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/python/binade"
     python/binade/*.py python/binade/py.typed)
foreach(path ${python_files})
    get_filename_component(folder "${package}/${path}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/python/binade/${path}" "${package}/${path}" SYMBOLIC)
endforeach()
# Under the name that the package looks for, whatever version the library carries.
file(CREATE_LINK "${PROJECT_BINARY_DIR}/${CMAKE_SHARED_LIBRARY_PREFIX}binade${CMAKE_SHARED_LIBRARY_SUFFIX}"
     "${package}/${CMAKE_SHARED_LIBRARY_PREFIX}binade${CMAKE_SHARED_LIBRARY_SUFFIX}" SYMBOLIC)

# ---- Installation -----------------------------------------------------------------------------

if(SKBUILD)
    set_property(TARGET binade_mlx PROPERTY INSTALL_RPATH "${origin};${origin}/../mlx/lib")
    set_property(TARGET binade_mlx_ops PROPERTY INSTALL_RPATH "${origin}/..;${origin}/../../mlx/lib")
    install(TARGETS binade_mlx LIBRARY DESTINATION binade COMPONENT python)
    install(TARGETS binade_mlx_ops LIBRARY DESTINATION binade/mlx COMPONENT python)
else()
    # MLX stays where it was found: C++ programs link both.
    set_property(TARGET binade_mlx PROPERTY INSTALL_RPATH "${origin};${MLX_LIBRARY_DIRS}")
    set_target_properties(binade_mlx PROPERTIES VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR})
    install(TARGETS binade_mlx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES src/mlx/r4_ops.h src/mlx/r4_path.h src/mlx/r4_load.h
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/binade/mlx)
endif()
