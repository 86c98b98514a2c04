// What tch does not offer of libtorch 2.11: numeric settings, version and instruction set, its
// threads, and a matrix product into existing memory.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <cstring>
#include <exception>
#include <string>

namespace at::native {
// oneDNN's matrix product, result = beta * result + alpha * mat1 @ mat2: exported by
// libtorch_cpu, in no installed header.
TORCH_API void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result,
                             float beta, float alpha);
} // namespace at::native

namespace {

// A C++ exception must not cross into Rust: it becomes a message of at most `size - 1` bytes.
template <typename Body>
int guarded(char* message, size_t size, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (const c10::Error& error) {
    std::strncpy(message, error.what_without_backtrace(), size - 1);
  } catch (const std::exception& error) {
    std::strncpy(message, error.what(), size - 1);
  } catch (...) {
    std::strncpy(message, "unknown C++ exception", size - 1);
  }
  message[size - 1] = '\0';
  return 1;
}

} // namespace

extern "C" {

const char* assay_torch_version() noexcept { return TORCH_VERSION; }

const char* assay_torch_cpu_capability() noexcept {
  static const std::string capability = at::get_cpu_capability();
  return capability.c_str();
}

int assay_torch_exact(char* message, size_t size) noexcept {
  return guarded(message, size, [] {
    auto& context = at::globalContext();
    context.setFloat32MatmulPrecision("highest");
    context.setAllowTF32CuBLAS(false);
    context.setAllowTF32CuDNN(false);
    context.setAllowFP16ReductionCPU(false);
    context.setAllowFP16BF16ReductionMathSDP(false);
    context.setAllowFP16AccumulationCuBLAS(false);
    context.setAllowFP16ReductionCuBLAS(false, false);
    context.setAllowBF16ReductionCuBLAS(false, false);
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    // Deterministic mode would fill every new tensor with NaN; nothing here reads one unwritten.
    context.setDeterministicFillUninitializedMemory(false);
  });
}

// Calls `body` `count` times, each on a thread of its own where there are as many.
void assay_torch_parallel(int64_t count, void (*body)(void*), void* context) noexcept {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) {
      body(context);
    }
  });
}

// out = x @ weight^T, plus out if `accumulate`. `x` and `out` have unit stride in rows.
// ATen gives float32 products on CPUs to MKL, which on AMD processors runs at half the rate of
// oneDNN; bfloat16 goes to oneDNN by itself.
int assay_torch_linear(const void* x, const void* weight, const void* out, bool accumulate,
                       char* message, size_t size) noexcept {
  return guarded(message, size, [&] {
    const auto& input = *static_cast<const at::Tensor*>(x);
    const auto transposed = static_cast<const at::Tensor*>(weight)->t();
    at::Tensor result = *static_cast<const at::Tensor*>(out);
    if (input.is_cpu() && input.scalar_type() == at::kFloat) {
      at::native::mkldnn_matmul(input, transposed, result, accumulate ? 1.0f : 0.0f, 1.0f);
    } else if (accumulate) {
      at::addmm_out(result, result, input, transposed);
    } else {
      at::mm_out(result, input, transposed);
    }
  });
}

} // extern "C"
