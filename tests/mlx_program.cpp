// Packed weights in a C++ program without Python: `program PACK` exits 0 if the products of
// the pack's two tensors have the bits of MLX's own.
#include <cstdio>

#include <binade/mlx/r4_load.h>
#include <binade/mlx/r4_path.h>
#include <mlx/mlx.h>

namespace mx = mlx::core;

static bool are_same(const mx::array &a, const mx::array &b) {
    return mx::array_equal(mx::view(a, mx::uint16), mx::view(b, mx::uint16)).item<bool>();
}

static bool is_refused(const char *path) {
    try {
        binade::Checkpoint checkpoint(path);
    } catch (const binade::Error &error) {
        return error.status == BINADE_E_USAGE;
    }
    return false;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    binade::Checkpoint checkpoint(argv[1]);
    const char *name = "model.layers.0.mlp.up_proj.weight";
    auto weight = checkpoint.load_r4(name), half = checkpoint.load_r4(name, 16, 40);
    auto bf16 = checkpoint.load_array(name), x = checkpoint.load_array("x");
    auto s = mx::new_stream(mx::Device::cpu);

    auto y = binade::r4_matmul(x, weight, std::nullopt, s);
    auto y_half = binade::r4_matmul(x, half);
    if (binade::r4_counts().matmul != 0) return std::puts("an operation evaluates"), 1;
    auto want = mx::matmul(x, mx::transpose(bf16));
    if (!are_same(y, want)) return std::puts("the product differs"), 1;
    if (!are_same(y_half, mx::slice(want, {0, 16}, {3, 40}))) return std::puts("half differs"), 1;
    if (!are_same(binade::r4_rebuild(weight), bf16)) return std::puts("the weight differs"), 1;
    if (!are_same(binade::r4_make(bf16).arrays->at(0), weight.arrays->at(0)))
        return std::puts("not equal"), 1;
    auto counts = binade::r4_counts();
    if (counts.matmul != 2 || counts.rebuild != 1) return std::puts("not counted"), 1;

    auto loss = [&](const mx::array &a) { return mx::sum(binade::r4_matmul(a, weight)); };
    auto plain = [&](const mx::array &a) { return mx::sum(mx::matmul(a, mx::transpose(bf16))); };
    if (!are_same(mx::grad(loss)(x), mx::grad(plain)(x))) return std::puts("gradient differs"), 1;
    if (!is_refused("/nowhere")) return std::puts("an absent pack opens"), 1;
    return 0;
}
