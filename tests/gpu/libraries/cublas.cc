// cuBLAS called directly: every kind of matrix product, the vector routines, batched
// factorisations, both pointer modes, streams, user workspaces, capture and threads.
#include <cublas_v2.h>

#include <thread>

#include "case.h"

using library::captured;
using library::Device;
using library::make;
using library::note;
using library::save;
using library::Stream;
using library::values;

namespace {

class Handle {
 public:
  Handle() { CHECK(cublasCreate(&handle_)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cublasDestroy(handle_); }
  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

// One cublasGemmEx over all four transpositions; kM, kN, kK are no powers of two but multiples of
// 16, as int8 wants them.
constexpr int kM = 208, kN = 144, kK = 176;

template <typename In, typename Out, typename Scale>
void gemm_ex(cudaDataType_t in, cudaDataType_t out, cublasComputeType_t compute, double low = -1,
             double high = 1) {
  Handle handle;
  Device<In> a(values<In>(kM * kK, 1, low, high)), b(values<In>(kK * kN, 2, low, high));
  const cublasOperation_t operations[] = {CUBLAS_OP_N, CUBLAS_OP_T};
  const Scale alpha = make<Scale>(1), beta = make<Scale>(1);
  int index = 0;
  for (cublasOperation_t ta : operations) {
    for (cublasOperation_t tb : operations) {
      Device<Out> c(values<Out>(kM * kN, 3, low, high));
      CHECK(cublasGemmEx(handle, ta, tb, kM, kN, kK, &alpha, a.get(), in,
                         ta == CUBLAS_OP_N ? kM : kK, b.get(), in, tb == CUBLAS_OP_N ? kK : kN,
                         &beta, c.get(), out, kM, compute, CUBLAS_GEMM_DEFAULT));
      save(("c" + std::to_string(index++)).c_str(), c);
    }
  }
}

}  // namespace

LIBRARY_CASE(version_and_modes) {
  Handle handle;
  int version = 0;
  CHECK(cublasGetVersion(handle, &version));
  cublasPointerMode_t pointer;
  cublasMath_t math;
  cublasAtomicsMode_t atomics;
  CHECK(cublasGetPointerMode(handle, &pointer));
  CHECK(cublasGetMathMode(handle, &math));
  CHECK(cublasGetAtomicsMode(handle, &atomics));
  note("version %d pointer %d math %d atomics %d", version, pointer, math, atomics);
  int target = -1;
  CHECK(cublasSetSmCountTarget(handle, 16));
  CHECK(cublasGetSmCountTarget(handle, &target));
  note("target %d", target);
}

LIBRARY_CASE(gemm_float) {
  gemm_ex<float, float, float>(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
}
LIBRARY_CASE(gemm_float_pedantic) {
  gemm_ex<float, float, float>(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC);
}
LIBRARY_CASE(gemm_tf32) {
  gemm_ex<float, float, float>(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
}
LIBRARY_CASE(gemm_float_fast_bf16) {
  gemm_ex<float, float, float>(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF);
}
LIBRARY_CASE(gemm_double) {
  gemm_ex<double, double, double>(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F);
}
LIBRARY_CASE(gemm_half) {
  gemm_ex<__half, __half, float>(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F);
}
LIBRARY_CASE(gemm_half_compute_half) {
  gemm_ex<__half, __half, __half>(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F);
}
LIBRARY_CASE(gemm_half_to_float) {
  gemm_ex<__half, float, float>(CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
}
LIBRARY_CASE(gemm_bfloat16) {
  gemm_ex<__nv_bfloat16, __nv_bfloat16, float>(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F);
}
LIBRARY_CASE(gemm_bfloat16_to_float) {
  gemm_ex<__nv_bfloat16, float, float>(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F);
}
LIBRARY_CASE(gemm_int8) {
  gemm_ex<int8_t, int, int>(CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, -100, 100);
}
LIBRARY_CASE(gemm_complex) {
  gemm_ex<float2, float2, float2>(CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F);
}
LIBRARY_CASE(gemm_double_complex) {
  gemm_ex<double2, double2, double2>(CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F);
}

LIBRARY_CASE(gemm_typed_calls) {
  Handle handle;
  Device<float> a(values<float>(300 * 70, 1)), b(values<float>(70 * 50, 2)), c(300 * 50);
  const float alpha = 0.5f, beta = 0;
  CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 300, 50, 70, &alpha, a.get(), 300, b.get(),
                    70, &beta, c.get(), 300));
  save("s", c);
  Device<__half> ha(values<__half>(300 * 70, 1)), hb(values<__half>(70 * 50, 2)), hc(300 * 50);
  const __half one = make<__half>(1), zero = make<__half>(0);
  CHECK(cublasHgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 300, 50, 70, &one, ha.get(), 300, hb.get(),
                    70, &zero, hc.get(), 300));
  save("h", hc);
  Device<double> da(values<double>(300 * 70, 1)), db(values<double>(70 * 50, 2)), dc(300 * 50);
  const double two = 2, none = 0;
  CHECK(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 300, 50, 70, &two, da.get(), 300, db.get(),
                    70, &none, dc.get(), 300));
  save("d", dc);
}

LIBRARY_CASE(gemm_odd_sizes) {
  Handle handle;
  const float alpha = 1, beta = 0;
  for (int size : {1, 3, 17, 63, 129, 1025}) {
    Device<float> a(values<float>(size * size, 4)), b(values<float>(size * size, 5)),
        c(size * size);
    CHECK(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, size, size, size, &alpha, a.get(), size,
                      b.get(), size, &beta, c.get(), size));
    save(("size" + std::to_string(size)).c_str(), c);
  }
}

LIBRARY_CASE(gemm_big_half) {
  Handle handle;
  const int n = 2048;
  Device<__half> a(values<__half>(n * n, 6)), b(values<__half>(n * n, 7)), c(n * n);
  const float alpha = 1, beta = 0;
  CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, a.get(), CUDA_R_16F, n,
                     b.get(), CUDA_R_16F, n, &beta, c.get(), CUDA_R_16F, n, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT));
  save("c", c);
}

LIBRARY_CASE(gemm_batched_pointers) {
  Handle handle;
  const int n = 48, count = 20;
  Device<float> a(values<float>(n * n * count, 8)), b(values<float>(n * n * count, 9)),
      c(n * n * count);
  std::vector<const float*> as, bs;
  std::vector<float*> cs;
  for (int i = 0; i < count; ++i) {
    as.push_back(a.get() + i * n * n);
    bs.push_back(b.get() + i * n * n);
    cs.push_back(c.get() + i * n * n);
  }
  Device<const float*> da(as), db(bs);
  Device<float*> dc(cs);
  const float alpha = 1, beta = 0;
  CHECK(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &alpha, da.get(), n, db.get(),
                           n, &beta, dc.get(), n, count));
  save("c", c);
}

LIBRARY_CASE(gemm_strided_batched) {
  Handle handle;
  const int n = 64, count = 33;
  Device<__half> a(values<__half>(n * n * count, 10)), b(values<__half>(n * n * count, 11)),
      c(n * n * count);
  const float alpha = 1, beta = 0;
  CHECK(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, a.get(),
                                   CUDA_R_16F, n, n * n, b.get(), CUDA_R_16F, n, n * n, &beta,
                                   c.get(), CUDA_R_16F, n, n * n, count, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT));
  save("half", c);
  Device<double> da(values<double>(n * n * count, 12)), dc(n * n * count);
  const double one = 1, none = 0;
  CHECK(cublasDgemmStridedBatched(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, da.get(), n,
                                  n * n, da.get(), n, n * n, &none, dc.get(), n, n * n, count));
  save("double", dc);
}

LIBRARY_CASE(gemm_grouped_batched) {
  Handle handle;
  const int m[] = {32, 65}, n[] = {40, 24}, k[] = {16, 50}, sizes[] = {3, 2};
  const cublasOperation_t none[] = {CUBLAS_OP_N, CUBLAS_OP_N};
  const float alpha[] = {1, 2}, beta[] = {0, 0};
  Device<float> a(values<float>(5 * 4096, 13)), b(values<float>(5 * 4096, 14)), c(5 * 4096);
  std::vector<const float*> as, bs;
  std::vector<float*> cs;
  for (int i = 0; i < 5; ++i)
    as.push_back(a.get() + i * 4096), bs.push_back(b.get() + i * 4096),
        cs.push_back(c.get() + i * 4096);
  Device<const float*> da(as), db(bs);
  Device<float*> dc(cs);
  CHECK(cublasSgemmGroupedBatched(handle, none, none, m, n, k, alpha, da.get(), m, db.get(), k,
                                  beta, dc.get(), m, 2, sizes));
  save("c", c);
}

LIBRARY_CASE(device_pointer_mode) {
  Handle handle;
  CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
  const int n = 100;
  Device<float> a(values<float>(n * n, 15)), x(values<float>(n, 16)), y(values<float>(n, 17));
  Device<float> scalars(std::vector<float>{0.75f, 0.25f}), results(4);
  Device<int> index(2);
  CHECK(cublasSgemv(handle, CUBLAS_OP_N, n, n, scalars.get(), a.get(), n, x.get(), 1,
                    scalars.get() + 1, y.get(), 1));
  CHECK(cublasSdot(handle, n, x.get(), 1, y.get(), 1, results.get()));
  CHECK(cublasSnrm2(handle, n, y.get(), 1, results.get() + 1));
  CHECK(cublasSasum(handle, n, y.get(), 1, results.get() + 2));
  CHECK(cublasIsamax(handle, n, y.get(), 1, index.get()));
  CHECK(cublasIsamin(handle, n, y.get(), 1, index.get() + 1));
  save("y", y);
  save("results", results);
  save("index", index);
}

LIBRARY_CASE(vectors) {
  Handle handle;
  const int n = 10007;
  Device<double> x(values<double>(n, 18)), y(values<double>(n, 19));
  double dot = 0, norm = 0, sum = 0;
  int largest = 0;
  CHECK(cublasDdot(handle, n, x.get(), 1, y.get(), 1, &dot));
  CHECK(cublasDnrm2(handle, n, x.get(), 1, &norm));
  CHECK(cublasDasum(handle, n, x.get(), 1, &sum));
  CHECK(cublasIdamax(handle, n, x.get(), 1, &largest));
  note("dot %a norm %a sum %a largest %d", dot, norm, sum, largest);
  const double half = 0.5, c = 0.6, s = 0.8;
  CHECK(cublasDaxpy(handle, n, &half, x.get(), 1, y.get(), 1));
  CHECK(cublasDscal(handle, n / 2, &half, x.get(), 2));
  CHECK(cublasDswap(handle, n, x.get(), 1, y.get(), 1));
  CHECK(cublasDrot(handle, n, x.get(), 1, y.get(), 1, &c, &s));
  CHECK(cublasDcopy(handle, 100, x.get(), 3, y.get(), 1));
  save("x", x);
  save("y", y);
}

LIBRARY_CASE(level2) {
  Handle handle;
  const int n = 130;
  Device<float> a(library::definite<float>(n, 20)), x(values<float>(n, 21)),
      y(values<float>(n, 22));
  const float alpha = 1.5f, beta = 0.5f;
  CHECK(cublasSsymv(handle, CUBLAS_FILL_MODE_LOWER, n, &alpha, a.get(), n, x.get(), 1, &beta,
                    y.get(), 1));
  CHECK(cublasStrmv(handle, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, a.get(),
                    n, x.get(), 1));
  CHECK(cublasStrsv(handle, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, a.get(),
                    n, y.get(), 1));
  CHECK(cublasSgbmv(handle, CUBLAS_OP_N, n, n, 2, 3, &alpha, a.get(), n, x.get(), 1, &beta, y.get(),
                    1));
  CHECK(cublasSger(handle, n, n, &alpha, x.get(), 1, y.get(), 1, a.get(), n));
  CHECK(cublasSsyr(handle, CUBLAS_FILL_MODE_LOWER, n, &alpha, x.get(), 1, a.get(), n));
  save("a", a);
  save("x", x);
  save("y", y);
}

LIBRARY_CASE(level3) {
  Handle handle;
  const int n = 150, k = 60;
  Device<float> a(library::definite<float>(n, 23)), b(values<float>(n * k, 24)), c(n * n), d(n * k);
  const float alpha = 1, beta = 0;
  CHECK(cublasSsyrk(handle, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, n, k, &alpha, b.get(), n, &beta,
                    c.get(), n));
  save("syrk", c);
  CHECK(cublasSsyr2k(handle, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, n, k, &alpha, b.get(), n, b.get(),
                     n, &beta, c.get(), n));
  save("syr2k", c);
  CHECK(cublasSsymm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, n, k, &alpha, a.get(), n,
                    b.get(), n, &beta, d.get(), n));
  save("symm", d);
  CHECK(cublasStrmm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T,
                    CUBLAS_DIAG_NON_UNIT, n, k, &alpha, a.get(), n, b.get(), n, d.get(), n));
  save("trmm", d);
  CHECK(cublasStrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                    CUBLAS_DIAG_NON_UNIT, n, k, &alpha, a.get(), n, b.get(), n));
  save("trsm", b);
  CHECK(cublasSgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, &alpha, a.get(), n, &alpha, a.get(), n,
                    c.get(), n));
  save("geam", c);
  CHECK(cublasSdgmm(handle, CUBLAS_SIDE_LEFT, n, n, a.get(), n, c.get(), 1, c.get(), n));
  save("dgmm", c);
}

LIBRARY_CASE(level3_complex) {
  Handle handle;
  const int n = 90, k = 40;
  Device<float2> a(library::definite<float2>(n, 25)), b(values<float2>(n * k, 26)), c(n * n),
      d(n * k);
  const float2 one{1, 0}, none{0, 0};
  const float alpha = 1, beta = 0;
  CHECK(cublasCherk(handle, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, n, k, &alpha, b.get(), n, &beta,
                    c.get(), n));
  save("herk", c);
  CHECK(cublasChemm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, n, k, &one, a.get(), n,
                    b.get(), n, &none, d.get(), n));
  save("hemm", d);
  CHECK(cublasCtrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_C,
                    CUBLAS_DIAG_NON_UNIT, n, k, &one, a.get(), n, b.get(), n));
  save("trsm", b);
}

namespace {

// `count` definite n x n matrices behind each other, and the array of pointers to them.
struct Batch {
  Batch(int n, int count, uint64_t seed)
      : matrices(make_all(n, count, seed)), pointers(addresses(matrices.get(), n * n, count)) {}
  static std::vector<float> make_all(int n, int count, uint64_t seed) {
    std::vector<float> all;
    for (int i = 0; i < count; ++i) {
      const std::vector<float> one = library::definite<float>(n, seed + i);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  static std::vector<float*> addresses(float* base, int step, int count) {
    std::vector<float*> out;
    for (int i = 0; i < count; ++i) out.push_back(base + i * step);
    return out;
  }
  Device<float> matrices;
  Device<float*> pointers;
};

}  // namespace

LIBRARY_CASE(batched_lu) {
  Handle handle;
  const int n = 24, count = 16;
  Batch a(n, count, 30), inverse(n, count, 60);
  Device<int> pivots(n * count), info(count);
  CHECK(cublasSgetrfBatched(handle, n, a.pointers.get(), n, pivots.get(), info.get(), count));
  save("lu", a.matrices);
  save("pivots", pivots);
  CHECK(cublasSgetriBatched(handle, n, a.pointers.get(), n, pivots.get(), inverse.pointers.get(), n,
                            info.get(), count));
  save("inverse", inverse.matrices);
  save("info", info);
}

LIBRARY_CASE(batched_qr_and_solve) {
  Handle handle;
  const int n = 20, count = 12;
  Batch a(n, count, 90), b(n, count, 120), tau(n, count, 150);
  int info = 0;
  CHECK(cublasSgeqrfBatched(handle, n, n, a.pointers.get(), n, tau.pointers.get(), &info, count));
  save("qr", a.matrices);
  const float alpha = 1;
  CHECK(cublasStrsmBatched(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                           CUBLAS_DIAG_NON_UNIT, n, n, &alpha, a.pointers.get(), n,
                           b.pointers.get(), n, count));
  save("solved", b.matrices);
  note("info %d", info);
}

LIBRARY_CASE(own_stream_and_workspace) {
  Stream stream(cudaStreamNonBlocking);
  Handle handle;
  Device<uint8_t> workspace(32 << 20);
  CHECK(cublasSetStream(handle, stream));
  CHECK(cublasSetWorkspace(handle, workspace.get(), workspace.size_bytes()));
  const int n = 512;
  Device<float> a(values<float>(n * n, 40)), b(n * n);
  const float alpha = 0.05f, beta = 0;
  for (int i = 0; i < 10; ++i) {
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, a.get(), n, a.get(), n,
                      &beta, b.get(), n));
    CHECK(cublasScopy(handle, n * n, b.get(), 1, a.get(), 1));
  }
  CHECK(cudaStreamSynchronize(stream));
  save("b", b);
}

LIBRARY_CASE(captured_product) {
  Stream stream;
  Handle handle;
  CHECK(cublasSetStream(handle, stream));
  const int n = 256;
  Device<float> a(values<float>(n * n, 41)), c(n * n);
  const float alpha = 1, beta = 1;
  captured(stream, 3, [&] {
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &alpha, a.get(), n, a.get(), n,
                      &beta, c.get(), n));
  });
  save("c", c);
}

LIBRARY_CASE(copies_of_matrices) {
  Stream stream;
  const int rows = 77, columns = 33;
  std::vector<float> from = values<float>(100 * columns, 42), back(rows * columns), vector_back(50);
  Device<float> device(90 * columns);
  CHECK(cublasSetMatrix(rows, columns, sizeof(float), from.data(), 100, device.get(), 90));
  CHECK(cublasGetMatrixAsync(rows, columns, sizeof(float), device.get(), 90, back.data(), rows,
                             stream));
  CHECK(cudaStreamSynchronize(stream));
  save("back", back);
  CHECK(cublasSetVector(50, sizeof(float), from.data(), 2, device.get(), 3));
  CHECK(cublasGetVector(50, sizeof(float), device.get(), 3, vector_back.data(), 1));
  save("vector", vector_back);
}

LIBRARY_CASE(threads_with_own_handles) {
  const int n = 300;
  std::vector<std::vector<float>> results(4);
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        Stream stream(cudaStreamNonBlocking);
        Handle handle;
        CHECK(cublasSetStream(handle, stream));
        Device<float> a(values<float>(n * n, 50 + t)), c(n * n);
        const float alpha = 1, beta = 0;
        for (int i = 0; i < 20; ++i)
          CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, a.get(), n, a.get(),
                            n, &beta, c.get(), n));
        CHECK(cudaStreamSynchronize(stream));
        results[t] = c.host();
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) {
    if (!errors[t].empty()) throw std::runtime_error(errors[t]);
    save(("thread" + std::to_string(t)).c_str(), results[t]);
  }
}

LIBRARY_CASE(bad_arguments) {
  Handle handle;
  Device<float> a(100);
  const float alpha = 1, beta = 0;
  note("negative size %d", cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, -1, 5, 5, &alpha, a.get(),
                                       5, a.get(), 5, &beta, a.get(), 5));
  note("short stride %d", cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 10, 5, 5, &alpha, a.get(),
                                      5, a.get(), 5, &beta, a.get(), 5));
  note("null handle %d", cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 5, 5, 5, &alpha, a.get(), 5,
                                     a.get(), 5, &beta, a.get(), 5));
}
