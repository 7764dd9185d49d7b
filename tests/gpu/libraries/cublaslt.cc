// cuBLASLt called directly: heuristics, epilogues (bias, activations, their gradients), layouts,
// batches, int8 and 8-bit floats.
#include <cublasLt.h>
#include <cuda_fp8.h>

#include "case.h"

using library::Device;
using library::note;
using library::save;
using library::Stream;
using library::values;

namespace {

constexpr size_t kWorkspace = 32 << 20;

// The description of one product D = epilogue(alpha A B + beta C) and what it needs; freed with the
// object.
class Product {
 public:
  Product(cublasComputeType_t compute, cudaDataType_t scale) {
    CHECK(cublasLtCreate(&handle_));
    CHECK(cublasLtMatmulDescCreate(&description_, compute, scale));
    CHECK(cublasLtMatmulPreferenceCreate(&preference_));
    const size_t limit = kWorkspace;
    CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof(limit)));
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    for (cublasLtMatrixLayout_t layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer, where the attribute is one
    CHECK(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)));
  }
  // A column-major matrix, or `batch` of them behind each other.
  cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int columns, int batch = 1) {
    cublasLtMatrixLayout_t made = nullptr;
    CHECK(cublasLtMatrixLayoutCreate(&made, type, rows, columns, rows));
    layouts_.push_back(made);
    const int64_t stride = static_cast<int64_t>(rows) * columns;
    if (batch > 1) {
      CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                             sizeof(batch)));
      CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof(stride)));
    }
    return made;
  }
  // Runs the first `tried` algorithms that the heuristic proposes; returns how many there were.
  template <typename Scale, typename Try>
  int run(Scale alpha, const void* a, cublasLtMatrixLayout_t la, const void* b,
          cublasLtMatrixLayout_t lb, Scale beta, void* c, cublasLtMatrixLayout_t lc, void* d,
          cublasLtMatrixLayout_t ld, int tried, Try after) {
    std::vector<cublasLtMatmulHeuristicResult_t> found(tried);
    int count = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, description_, la, lb, lc, ld, preference_, tried,
                                         found.data(), &count));
    for (int i = 0; i < count; ++i) {
      CHECK(cublasLtMatmul(handle_, description_, &alpha, a, la, b, lb, &beta, c, lc, d, ld,
                           &found[i].algo, workspace_.get(), workspace_.size_bytes(), stream_));
      CHECK(cudaStreamSynchronize(stream_));
      after(i);
    }
    return count;
  }
  cublasLtHandle_t handle() { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::vector<cublasLtMatrixLayout_t> layouts_;
  Device<uint8_t> workspace_{kWorkspace};
  Stream stream_{cudaStreamNonBlocking};
};

constexpr int kM = 256, kN = 192, kK = 128;

enum Uses { kNothing = 0, kBias = 1, kAuxiliary = 2 };

// D = epilogue(A^T B) in `type`, with a bias vector and an auxiliary matrix where the epilogue uses
// them.
template <typename T>
void with_epilogue(cudaDataType_t type, cublasLtEpilogue_t epilogue, int uses) {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  Device<T> a(values<T>(kM * kK, 1)), b(values<T>(kK * kN, 2)), c(kM * kN), d(kM * kN),
      bias(values<T>(kM, 3)), aux(values<T>(kM * kN, 4));
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if ((uses & kBias) != 0) product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
  if ((uses & kAuxiliary) != 0) {
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.get());
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(kM));
  }
  const int count = product.run(
      1.0f, a.get(), product.layout(type, kK, kM), b.get(), product.layout(type, kK, kN), 0.0f,
      c.get(), product.layout(type, kM, kN), d.get(), product.layout(type, kM, kN), 1, [](int) {});
  note("algorithms %d", count);
  save("d", d);
  save("aux", aux);
}

// The gradient of a bias is the sum over a product's columns: written beside D = A B^T.
void bias_gradient() {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  Device<__half> a(values<__half>(kM * kK, 5)), b(values<__half>(kN * kK, 6)), d(kM * kN),
      gradient(kN);
  product.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
  product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gradient.get());
  product.run(1.0f, a.get(), product.layout(CUDA_R_16F, kM, kK), b.get(),
              product.layout(CUDA_R_16F, kN, kK), 0.0f, d.get(), product.layout(CUDA_R_16F, kM, kN),
              d.get(), product.layout(CUDA_R_16F, kM, kN), 1, [](int) {});
  save("d", d);
  save("gradient", gradient);
}

// 8-bit floats want A transposed and a scale per matrix.
template <typename A, typename B>
void eight_bits(cudaDataType_t ta, cudaDataType_t tb) {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  Device<A> a(values<A>(kM * kK, 5));
  Device<B> b(values<B>(kK * kN, 6));
  Device<__nv_bfloat16> c(kM * kN), d(kM * kN);
  Device<float> scale_a(std::vector<float>{0.5f}), scale_b(std::vector<float>{2.0f});
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  product.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_a.get());
  product.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_b.get());
  const int count =
      product.run(1.0f, a.get(), product.layout(ta, kK, kM), b.get(), product.layout(tb, kK, kN),
                  0.0f, c.get(), product.layout(CUDA_R_16BF, kM, kN), d.get(),
                  product.layout(CUDA_R_16BF, kM, kN), 1, [](int) {});
  note("algorithms %d", count);
  if (count == 0) library::skip("no algorithm for these 8-bit types on this device");
  save("d", d);
}

}  // namespace

LIBRARY_CASE(version) {
  note("version %zu cudart %zu", cublasLtGetVersion(), cublasLtGetCudartVersion());
}

LIBRARY_CASE(several_algorithms_half) {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const int n = 512;
  Device<__half> a(values<__half>(n * n, 7)), b(values<__half>(n * n, 8)), d(n * n);
  const int count = product.run(
      1.0f, a.get(), product.layout(CUDA_R_16F, n, n), b.get(), product.layout(CUDA_R_16F, n, n),
      0.0f, d.get(), product.layout(CUDA_R_16F, n, n), d.get(), product.layout(CUDA_R_16F, n, n), 8,
      [&](int i) { save(("d" + std::to_string(i)).c_str(), d); });
  note("algorithms %d", count);
}

LIBRARY_CASE(several_algorithms_float) {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const int n = 300;
  Device<float> a(values<float>(n * n, 9)), b(values<float>(n * n, 10)), d(n * n);
  const int count = product.run(
      1.0f, a.get(), product.layout(CUDA_R_32F, n, n), b.get(), product.layout(CUDA_R_32F, n, n),
      0.0f, d.get(), product.layout(CUDA_R_32F, n, n), d.get(), product.layout(CUDA_R_32F, n, n), 8,
      [&](int i) { save(("d" + std::to_string(i)).c_str(), d); });
  note("algorithms %d", count);
}

LIBRARY_CASE(bias_half) { with_epilogue<__half>(CUDA_R_16F, CUBLASLT_EPILOGUE_BIAS, kBias); }
LIBRARY_CASE(relu_half) { with_epilogue<__half>(CUDA_R_16F, CUBLASLT_EPILOGUE_RELU, kNothing); }
LIBRARY_CASE(relu_bias_bfloat16) {
  with_epilogue<__nv_bfloat16>(CUDA_R_16BF, CUBLASLT_EPILOGUE_RELU_BIAS, kBias);
}
LIBRARY_CASE(gelu_half) { with_epilogue<__half>(CUDA_R_16F, CUBLASLT_EPILOGUE_GELU, kNothing); }
LIBRARY_CASE(gelu_bias_bfloat16) {
  with_epilogue<__nv_bfloat16>(CUDA_R_16BF, CUBLASLT_EPILOGUE_GELU_BIAS, kBias);
}
LIBRARY_CASE(gelu_aux_half) {
  with_epilogue<__half>(CUDA_R_16F, CUBLASLT_EPILOGUE_GELU_AUX, kAuxiliary);
}
LIBRARY_CASE(gelu_aux_bias_half) {
  with_epilogue<__half>(CUDA_R_16F, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, kBias | kAuxiliary);
}
LIBRARY_CASE(gelu_gradient_half) {
  with_epilogue<__half>(CUDA_R_16F, CUBLASLT_EPILOGUE_DGELU, kAuxiliary);
}
LIBRARY_CASE(bias_float) { with_epilogue<float>(CUDA_R_32F, CUBLASLT_EPILOGUE_BIAS, kBias); }
LIBRARY_CASE(bias_gradient_half) { bias_gradient(); }

LIBRARY_CASE(e4m3) { eight_bits<__nv_fp8_e4m3, __nv_fp8_e4m3>(CUDA_R_8F_E4M3, CUDA_R_8F_E4M3); }
LIBRARY_CASE(e4m3_by_e5m2) {
  eight_bits<__nv_fp8_e4m3, __nv_fp8_e5m2>(CUDA_R_8F_E4M3, CUDA_R_8F_E5M2);
}

LIBRARY_CASE(int8) {
  Product product(CUBLAS_COMPUTE_32I, CUDA_R_32I);
  Device<int8_t> a(values<int8_t>(kM * kK, 11, -100, 100)),
      b(values<int8_t>(kK * kN, 12, -100, 100));
  Device<int> d(kM * kN);
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  const int count =
      product.run(1, a.get(), product.layout(CUDA_R_8I, kK, kM), b.get(),
                  product.layout(CUDA_R_8I, kK, kN), 0, d.get(), product.layout(CUDA_R_32I, kM, kN),
                  d.get(), product.layout(CUDA_R_32I, kM, kN), 1, [](int) {});
  note("algorithms %d", count);
  save("d", d);
}

LIBRARY_CASE(batches) {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const int n = 96, batch = 10;
  Device<__nv_bfloat16> a(values<__nv_bfloat16>(n * n * batch, 13)), d(n * n * batch);
  product.run(1.0f, a.get(), product.layout(CUDA_R_16BF, n, n, batch), a.get(),
              product.layout(CUDA_R_16BF, n, n, batch), 0.0f, d.get(),
              product.layout(CUDA_R_16BF, n, n, batch), d.get(),
              product.layout(CUDA_R_16BF, n, n, batch), 1, [](int) {});
  save("d", d);
}

LIBRARY_CASE(matrix_transform) {
  Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixTransformDesc_t transform = nullptr;
  CHECK(cublasLtMatrixTransformDescCreate(&transform, CUDA_R_32F));
  const cublasOperation_t flipped = CUBLAS_OP_T;
  CHECK(cublasLtMatrixTransformDescSetAttribute(transform, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA,
                                                &flipped, sizeof(flipped)));
  Device<float> a(values<float>(kM * kN, 14)), out(kM * kN);
  const float alpha = 2, beta = 0;
  CHECK(cublasLtMatrixTransform(product.handle(), transform, &alpha, a.get(),
                                product.layout(CUDA_R_32F, kM, kN), &beta, nullptr, nullptr,
                                out.get(), product.layout(CUDA_R_32F, kN, kM), nullptr));
  save("out", out);
  CHECK(cublasLtMatrixTransformDescDestroy(transform));
}
