// r4_binding.cpp - the Python face of r4_ops.h and r4_load.h: module binade.mlx._ops.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <iterator>

#include "cuda/gpu_driver.h"
#include "mlx/cuda_gemm.h"
#include "mlx/r4_group.h"
#include "mlx/r4_load.h"
#include "mlx/r4_metal.h"
#include "mlx/r4_path.h"

extern "C" BINADE_API const gpu_sources gpu_sources;

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// The exceptions that the package documents.
void raise_error(const binade::Error &error) {
    const char *names[] = {"", "DataError", "UsageError", "FileError"};
    auto status = static_cast<size_t>(error.status);
    if (error.status == BINADE_E_MEMORY) {
        PyErr_SetString(PyExc_MemoryError, error.what());
        return;
    }
    nb::object type = nb::module_::import_("binade").attr(
        status < std::size(names) && status ? names[status] : "BinadeError");
    PyErr_SetString(type.ptr(), error.what());
}

void translate_errors() {
    nb::register_exception_translator([](const std::exception_ptr &p, void *) {
        try {
            std::rethrow_exception(p);
        } catch (const binade::Error &error) {
            raise_error(error);
        }
    });
}

nb::tuple shape_of(const mlx::core::Shape &shape) {
    nb::list dims;
    for (int d : shape)
        dims.append(d);
    return nb::tuple(dims);
}

nb::dict info_of(const binade::Checkpoint &c, const std::string &name) {
    auto t = c.info(name);
    nb::list shape;
    for (size_t d = 0; d < t.ndim; d++)
        shape.append(t.shape[d]);
    nb::dict info;
    info["dtype"] = t.dtype;
    info["shape"] = nb::tuple(shape);
    info["packed"] = t.packed != 0;
    info["nbytes"] = t.nbytes;
    info["stored_nbytes"] = t.stored_nbytes;
    return info;
}

void bind_weight(nb::module_ &m) {
    nb::class_<binade::R4Weight>(m, "R4Weight", "A packed weight in memory, [R, K] or [E, R, K].")
        .def_prop_ro("shape", [](const binade::R4Weight &w) { return shape_of(w.shape()); })
        .def_prop_ro("ndim", [](const binade::R4Weight &w) { return w.stacked ? 3 : 2; })
        .def_prop_ro("nbytes", &binade::R4Weight::nbytes, "Bytes that it takes in memory.")
        .def_prop_ro(
            "arrays",
            [](const binade::R4Weight &w) {
                nb::list arrays;
                for (const auto &a : *w.arrays)
                    arrays.append(a);
                return nb::tuple(arrays);
            },
            "The arrays that hold it; rows of the same tensor may share them.")
        .def_prop_ro(
            "device",
            [](const binade::R4Weight &w) {
                const char *names[] = {"cpu", "cuda", "metal"};
                return names[static_cast<int>(w.layout)];
            },
            "What it was made for: cpu, cuda or metal.");
}

void bind_group(nb::module_ &m) {
    nb::class_<binade::R4Group>(
        m, "R4Group",
        "Weights of layers that get the same x one after another: the first product that is asked "
        "for computes all, where one launch can.")
        .def(nb::init<std::vector<binade::R4Weight>>(), "weights"_a)
        .def("matmul", &binade::R4Group::matmul, "i"_a, "x"_a, "r4_matmul(x, weights[i]).")
        .def("gather_mm", &binade::R4Group::gather_mm, "i"_a, "x"_a, "rhs_indices"_a, nb::kw_only(),
             nb::arg("sorted_indices") = false, "r4_gather_mm(x, weights[i], ...).");
}

void bind_checkpoint(nb::module_ &m) {
    nb::class_<binade::Checkpoint>(m, "Checkpoint", "An open checkpoint, packed or not.")
        .def(nb::init<const std::string &, const std::string &>(), "path"_a, "revision"_a = "",
             nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("path", &binade::Checkpoint::path)
        .def_prop_ro("format", &binade::Checkpoint::format, "0 for an ordinary checkpoint.")
        .def("names", &binade::Checkpoint::names)
        .def("info", &info_of, "name"_a)
        .def("load_array", &binade::Checkpoint::load_array, "name"_a,
             nb::call_guard<nb::gil_scoped_release>())
        .def("load_r4",
             nb::overload_cast<const std::string &>(&binade::Checkpoint::load_r4, nb::const_),
             "name"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("load_r4",
             nb::overload_cast<const std::string &, int, int>(&binade::Checkpoint::load_r4,
                                                              nb::const_),
             "name"_a, "row0"_a, "row1"_a, nb::call_guard<nb::gil_scoped_release>());
}

void bind_making(nb::module_ &m) {
    m.def("r4_make", &binade::r4_make, "weight"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Packs a BF16 array in memory; evaluates it.");
}

void bind_operations(nb::module_ &m) {
    m.def("r4_matmul", &binade::r4_matmul, "x"_a, "w"_a, "bias"_a = nb::none(), nb::kw_only(),
          "stream"_a = nb::none(), "x @ W.T, with a bias addmm(bias, x, W.T).");
    m.def("r4_gather_mm", &binade::r4_gather_mm, "x"_a, "w"_a, "lhs_indices"_a = nb::none(),
          "rhs_indices"_a, nb::kw_only(), nb::arg("sorted_indices") = false,
          "stream"_a = nb::none(), "gather_mm(x, W.swapaxes(-1, -2), lhs_indices, rhs_indices).");
    m.def("r4_matmuls", &binade::r4_matmuls, "x"_a, "weights"_a, nb::kw_only(),
          "stream"_a = nb::none(), "[x @ W.T for W in weights].");
    m.def("r4_gather_mms", &binade::r4_gather_mms, "x"_a, "weights"_a, "lhs_indices"_a = nb::none(),
          "rhs_indices"_a, nb::kw_only(), nb::arg("sorted_indices") = false,
          "stream"_a = nb::none(), "[gather_mm(x, W.swapaxes(-1, -2), ...) for W in weights].");
    m.def("fuse_add", &binade::r4_fuse_add, "residual"_a, "product"_a,
          "residual + product in one launch, or None where there is none for it.");
    m.def("fuse_gated", &binade::r4_fuse_gated, "gate"_a, "up"_a, "act"_a,
          "act[gate.view(mx.uint16)] * up in the launch of both products, or None.");
    m.def("r4_rows", &binade::r4_rows, "w"_a, "ids"_a, nb::kw_only(), "stream"_a = nb::none(),
          "W[ids].");
    m.def("r4_rebuild", &binade::r4_rebuild, "w"_a, nb::kw_only(), "stream"_a = nb::none(),
          "W as a BF16 array.");
}

nb::tuple path_of(const binade::R4Weight &w, int nrows, bool has_bias, bool sorted_indices) {
    binade::R4Case c{.layout = w.layout,
                     .nrows = nrows,
                     .rows = w.rows,
                     .cols = w.cols,
                     .has_bias = has_bias,
                     .is_sorted = sorted_indices,
                     .experts = w.experts};
    auto path = w.stacked ? binade::r4_gather_path(c) : binade::r4_matmul_path(c);
    return nb::make_tuple(path.kernel, path.reason);
}

nb::dict counts() {
    auto c = binade::r4_counts();
    nb::dict counts;
    counts["matmul"] = c.matmul;
    counts["gather_mm"] = c.gather_mm;
    counts["rows"] = c.rows;
    counts["rebuild"] = c.rebuild;
    return counts;
}

nb::list served() {
    nb::list all;
    for (const auto &s : binade::r4_served())
        all.append(nb::make_tuple(s.operation, s.kernel, s.nrows, s.rows, s.cols, s.count));
    return all;
}

void bind_paths(nb::module_ &m) {
    m.def(
        "is_row_contiguous", [](const mlx::core::array &a) { return a.flags().row_contiguous; },
        "a"_a, "Whether an evaluated array lies row by row without gaps.");
    m.def("mlx_is_proven", &binade::r4_mlx_is_proven,
          "Whether the kernels are proven to add in the order of the MLX that runs.");
    m.def("path", &path_of, "w"_a, "nrows"_a, nb::arg("has_bias") = false, nb::kw_only(),
          nb::arg("sorted_indices") = false,
          "The kernel that serves nrows rows of x (of each item, with experts), or 'rebuild'; and "
          "why.");
    m.def(
        "gemm_plan", &binade::cuda_gemm_plan_text, "m"_a, "n"_a, "k"_a,
        "On an NVIDIA GPU: cublasLt's plan for x [m, k] times W [n, k], and what is known of it.");
    m.def("distrust", &binade::r4_distrust, "kernel"_a,
          "From now on what 'cpu', 'matvec', 'gemm', 'gather' or 'rows' would serve is rebuilt; of "
          "'fused' "
          "launches the products stay, and MLX does the rest.");
    m.def("forbid_rebuild", &binade::r4_forbid_rebuild, "forbid"_a,
          "Makes it an error to rebuild where a kernel should serve, for tests.");
    m.def("reset_counts", &binade::r4_reset_counts);
    m.def("counts", &counts,
          "How often operations were served by kernels, and weights rebuilt, counted when "
          "evaluated.");
    m.def("served", &served,
          "The same as (operation, kernel, rows of x, rows, columns of the weight, count).");
}

// Python in the place of an Apple GPU.
binade::MetalLauncher launcher_of(nb::callable function) {
    return [function](const binade::MetalLaunch &launch) {
        nb::gil_scoped_acquire locked;
        const auto &p = launch.plan;
        nb::list shapes, values;
        for (const auto &shape : launch.shapes)
            shapes.append(shape_of(shape));
        for (int i = 0; i < p.nvalues; i++)
            values.append(p.values[i]);
        auto made = function(p.kernel, values, nb::make_tuple(p.grid[0], p.grid[1], p.grid[2]),
                             nb::make_tuple(p.threadgroup[0], p.threadgroup[1], p.threadgroup[2]),
                             launch.inputs, shapes);
        return nb::cast<binade::Arrays>(made);
    };
}

void bind_metal(nb::module_ &m) {
    m.def(
        "set_metal_launcher",
        [](const std::string &architecture, std::optional<nb::callable> function) {
            binade::metal_set_launcher(architecture, function ? launcher_of(*function) : nullptr);
        },
        "architecture"_a, "function"_a.none(),
        "For tests: function(kernel, values, grid, threadgroup, inputs, shapes) carries out "
        "launches instead of an Apple GPU of that architecture; None undoes it.");
    m.def(
        "device_sources",
        [] {
            nb::dict texts;
            for (int i = 0; i < ::gpu_sources.count; i++)
                texts[::gpu_sources.names[i]] = ::gpu_sources.texts[i];
            return texts;
        },
        "The device code inside this build, by file name.");
}

} // namespace

NB_MODULE(_ops, m) {
    m.doc() = "MLX operations on Binade weights.";
    nb::module_::import_("mlx.core"); // registers array and stream
    translate_errors();
    bind_weight(m);
    bind_group(m);
    bind_checkpoint(m);
    bind_making(m);
    bind_operations(m);
    bind_paths(m);
    bind_metal(m);
}
