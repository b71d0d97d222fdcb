// r4_metal_launch.cpp - launches of r4_metal.h: MLX's metal_kernel, or what stands for it in tests.
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "cuda/gpu_driver.h"
#include "metal/metal_kernels.h"
#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/gpu/device_info.h"
#include "mlx/fast.h"
#include "mlx/r4_metal.h"

extern "C" const gpu_sources gpu_sources; // cmake/embed.cmake makes them

namespace binade {

namespace {

// What stands for a GPU.
struct Stand {
    metal_gpu gpu;
    MetalLauncher launcher;
};

std::optional<Stand> &stand() {
    static std::optional<Stand> in_place;
    return in_place;
}

const char *text_of(const std::string &file) {
    const char *text = gpu_find_source(&::gpu_sources, file.c_str());
    if (!text) throw std::logic_error(file + " is no source of this build");
    return text;
}

mx::Dtype dtype_of(std::string_view name) {
    if (name == "bfloat16") return mx::bfloat16;
    if (name == "float32") return mx::float32;
    if (name == "uint32") return mx::uint32;
    throw std::logic_error("an output of another dtype");
}

const mx::fast::CustomKernelFunction &function_of(const metal_kernel &kernel) {
    static std::mutex lock;
    static std::map<std::string, mx::fast::CustomKernelFunction> made;
    std::lock_guard guard(lock);
    auto found = made.find(kernel.name);
    if (found != made.end()) return found->second;
    std::vector<std::string> inputs, outputs;
    std::string header;
    for (const auto *a = kernel.inputs; a->name; a++)
        inputs.emplace_back(a->name);
    for (const auto *a = kernel.outputs; a->name; a++)
        outputs.emplace_back(a->name);
    for (const auto *file = kernel.headers; *file; file++)
        header += text_of(*file);
    auto body = text_of("metal/bodies/" + std::string(kernel.name) + ".metal");
    auto function = mx::fast::metal_kernel(std::string("binade_") + kernel.name, inputs, outputs,
                                           body, header, true, false);
    return made.emplace(kernel.name, function).first->second;
}

} // namespace

void metal_set_launcher(const std::string &architecture, MetalLauncher launcher) {
    if (launcher)
        stand() = {metal_gpu_of(architecture.c_str(), true), std::move(launcher)};
    else
        stand().reset();
}

bool metal_is_emulated() {
    return stand().has_value();
}

bool metal_is_available() {
    return metal_is_emulated() || (mx::gpu::is_available() && !mx::cu::is_available());
}

const metal_gpu &metal_device() {
    if (stand()) return stand()->gpu;
    // MLX's matrix units need macOS 26.2 and a GPU that has them; where one is not known, a GPU
    // that has them is taken to use them, and what they would do is rebuilt.
    static const metal_gpu gpu = [] {
        const auto &info = mx::gpu::device_info();
        auto found = info.find("architecture");
        auto name = found == info.end() ? std::string() : std::get<std::string>(found->second);
        return metal_gpu_of(name.c_str(), true);
    }();
    return gpu;
}

Arrays metal_launch(const metal_plan &plan, const Named &given,
                    const std::vector<mx::Shape> &shapes, mx::Stream s) {
    const auto &kernel = *metal_find_kernel(plan.kernel);
    auto sizes = mx::array(plan.sizes, {plan.nsizes}, mx::int32);
    Arrays inputs;
    std::vector<mx::Dtype> dtypes;
    for (const auto *a = kernel.inputs; a->name; a++)
        inputs.push_back(std::strcmp(a->name, "sizes") == 0 ? sizes : given.at(a->name));
    for (const auto *a = kernel.outputs; a->name; a++)
        dtypes.push_back(dtype_of(a->dtype));
    if (stand()) return stand()->launcher({plan, inputs, shapes, dtypes});

    std::vector<std::pair<std::string, mx::fast::TemplateArg>> values;
    for (int i = 0; i < plan.nvalues; i++) {
        std::string name = kernel.parameters[i];
        if (name == "BIAS")
            values.emplace_back(name, plan.values[i] != 0);
        else
            values.emplace_back(name, plan.values[i]);
    }
    const auto *g = plan.grid, *t = plan.threadgroup;
    return function_of(kernel)(inputs, shapes, dtypes, {g[0], g[1], g[2]}, {t[0], t[1], t[2]},
                               values, std::nullopt, false, s);
}

} // namespace binade
