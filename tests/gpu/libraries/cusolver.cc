// cuSOLVER called directly: dense factorisations, eigenvalues, singular values, least squares, the
// 64-bit interface, batches, sparse solves.
#include <cusolverDn.h>
#include <cusolverSp.h>

#include <algorithm>

#include "case.h"

using library::definite;
using library::Device;
using library::note;
using library::save;
using library::values;

namespace {

class Handle {
 public:
  Handle() { CHECK(cusolverDnCreate(&handle_)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cusolverDnDestroy(handle_); }
  operator cusolverDnHandle_t() const { return handle_; }

 private:
  cusolverDnHandle_t handle_ = nullptr;
};

constexpr cublasFillMode_t kLower = CUBLAS_FILL_MODE_LOWER;

}  // namespace

LIBRARY_CASE(version) {
  int version = 0;
  CHECK(cusolverGetVersion(&version));
  note("version %d", version);
}

LIBRARY_CASE(lu_and_solve_float) {
  Handle handle;
  const int n = 150;
  Device<float> a(definite<float>(n, 1)), b(values<float>(n * 3, 2));
  Device<int> pivots(n), info(1);
  int size = 0;
  CHECK(cusolverDnSgetrf_bufferSize(handle, n, n, a.get(), n, &size));
  Device<float> work(size);
  CHECK(cusolverDnSgetrf(handle, n, n, a.get(), n, work.get(), pivots.get(), info.get()));
  CHECK(cusolverDnSgetrs(handle, CUBLAS_OP_N, n, 3, a.get(), n, pivots.get(), b.get(), n,
                         info.get()));
  save("lu", a);
  save("pivots", pivots);
  save("solution", b);
  save("info", info);
}

LIBRARY_CASE(lu_complex) {
  Handle handle;
  const int n = 100;
  Device<double2> a(values<double2>(n * n, 3));
  Device<int> pivots(n), info(1);
  int size = 0;
  CHECK(cusolverDnZgetrf_bufferSize(handle, n, n, a.get(), n, &size));
  Device<double2> work(size);
  CHECK(cusolverDnZgetrf(handle, n, n, a.get(), n, work.get(), pivots.get(), info.get()));
  save("lu", a);
  save("pivots", pivots);
}

LIBRARY_CASE(cholesky_double) {
  Handle handle;
  const int n = 260;
  Device<double> a(definite<double>(n, 4)), b(values<double>(n * 2, 5));
  Device<int> info(1);
  int size = 0;
  CHECK(cusolverDnDpotrf_bufferSize(handle, kLower, n, a.get(), n, &size));
  Device<double> work(size);
  CHECK(cusolverDnDpotrf(handle, kLower, n, a.get(), n, work.get(), size, info.get()));
  CHECK(cusolverDnDpotrs(handle, kLower, n, 2, a.get(), n, b.get(), n, info.get()));
  save("factor", a);
  save("solution", b);
  int inverse_size = 0;
  CHECK(cusolverDnDpotri_bufferSize(handle, kLower, n, a.get(), n, &inverse_size));
  Device<double> more(inverse_size);
  CHECK(cusolverDnDpotri(handle, kLower, n, a.get(), n, more.get(), inverse_size, info.get()));
  save("inverse", a);
}

LIBRARY_CASE(cholesky_of_an_indefinite_matrix) {
  Handle handle;
  const int n = 20;
  std::vector<double> host = definite<double>(n, 6);
  host[7 * n + 7] = -1;
  Device<double> a(host);
  Device<int> info(1);
  int size = 0;
  CHECK(cusolverDnDpotrf_bufferSize(handle, kLower, n, a.get(), n, &size));
  Device<double> work(size);
  CHECK(cusolverDnDpotrf(handle, kLower, n, a.get(), n, work.get(), size, info.get()));
  save("info", info);
}

LIBRARY_CASE(qr_float) {
  Handle handle;
  const int m = 180, n = 90;
  Device<float> a(values<float>(m * n, 7)), tau(n), c(values<float>(m * 4, 8));
  Device<int> info(1);
  int factor = 0, multiply = 0, generate = 0;
  CHECK(cusolverDnSgeqrf_bufferSize(handle, m, n, a.get(), m, &factor));
  CHECK(cusolverDnSormqr_bufferSize(handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, m, 4, n, a.get(), m,
                                    tau.get(), c.get(), m, &multiply));
  CHECK(cusolverDnSorgqr_bufferSize(handle, m, n, n, a.get(), m, tau.get(), &generate));
  const int size = std::max(factor, std::max(multiply, generate));
  Device<float> work(size);
  CHECK(cusolverDnSgeqrf(handle, m, n, a.get(), m, tau.get(), work.get(), size, info.get()));
  save("qr", a);
  CHECK(cusolverDnSormqr(handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, m, 4, n, a.get(), m, tau.get(),
                         c.get(), m, work.get(), size, info.get()));
  save("product", c);
  CHECK(cusolverDnSorgqr(handle, m, n, n, a.get(), m, tau.get(), work.get(), size, info.get()));
  save("q", a);
}

LIBRARY_CASE(singular_values_double) {
  Handle handle;
  const int m = 90, n = 70;
  Device<double> a(values<double>(m * n, 9)), s(n), u(m * m), vt(n * n);
  Device<int> info(1);
  int size = 0;
  CHECK(cusolverDnDgesvd_bufferSize(handle, m, n, &size));
  Device<double> work(size);
  CHECK(cusolverDnDgesvd(handle, 'A', 'A', m, n, a.get(), m, s.get(), u.get(), m, vt.get(), n,
                         work.get(), size, nullptr, info.get()));
  save("s", s);
  save("u", u);
  save("vt", vt);
}

LIBRARY_CASE(singular_values_jacobi) {
  Handle handle;
  const int m = 60, n = 40;
  Device<float> a(values<float>(m * n, 10)), s(n), u(m * m), v(n * n);
  Device<int> info(1);
  gesvdjInfo_t parameters = nullptr;
  CHECK(cusolverDnCreateGesvdjInfo(&parameters));
  int size = 0;
  CHECK(cusolverDnSgesvdj_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, 0, m, n, a.get(), m, s.get(),
                                     u.get(), m, v.get(), n, &size, parameters));
  Device<float> work(size);
  CHECK(cusolverDnSgesvdj(handle, CUSOLVER_EIG_MODE_VECTOR, 0, m, n, a.get(), m, s.get(), u.get(),
                          m, v.get(), n, work.get(), size, info.get(), parameters));
  save("s", s);
  save("u", u);
  CHECK(cusolverDnDestroyGesvdjInfo(parameters));
}

LIBRARY_CASE(eigenvalues_symmetric) {
  Handle handle;
  const int n = 130;
  Device<float> a(definite<float>(n, 11)), w(n);
  Device<int> info(1);
  int size = 0;
  CHECK(cusolverDnSsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(), n,
                                    w.get(), &size));
  Device<float> work(size);
  CHECK(cusolverDnSsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(), n, w.get(),
                         work.get(), size, info.get()));
  save("values", w);
  save("vectors", a);
}

LIBRARY_CASE(eigenvalues_hermitian) {
  Handle handle;
  const int n = 80;
  Device<float2> a(definite<float2>(n, 12));
  Device<float> w(n);
  Device<int> info(1);
  int size = 0;
  CHECK(cusolverDnCheevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(), n,
                                    w.get(), &size));
  Device<float2> work(size);
  CHECK(cusolverDnCheevd(handle, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(), n, w.get(),
                         work.get(), size, info.get()));
  save("values", w);
  save("vectors", a);
}

LIBRARY_CASE(eigenvalues_generalised) {
  Handle handle;
  const int n = 60;
  Device<double> a(definite<double>(n, 13)), b(definite<double>(n, 14)), w(n);
  Device<int> info(1);
  int size = 0;
  CHECK(cusolverDnDsygvd_bufferSize(handle, CUSOLVER_EIG_TYPE_1, CUSOLVER_EIG_MODE_VECTOR, kLower,
                                    n, a.get(), n, b.get(), n, w.get(), &size));
  Device<double> work(size);
  CHECK(cusolverDnDsygvd(handle, CUSOLVER_EIG_TYPE_1, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(),
                         n, b.get(), n, w.get(), work.get(), size, info.get()));
  save("values", w);
  save("vectors", a);
}

LIBRARY_CASE(eigenvalues_batched_jacobi) {
  Handle handle;
  const int n = 16, count = 25;
  std::vector<float> host;
  for (int i = 0; i < count; ++i) {
    const std::vector<float> one = definite<float>(n, 100 + i);
    host.insert(host.end(), one.begin(), one.end());
  }
  Device<float> a(host), w(n * count);
  Device<int> info(count);
  syevjInfo_t parameters = nullptr;
  CHECK(cusolverDnCreateSyevjInfo(&parameters));
  int size = 0;
  CHECK(cusolverDnSsyevjBatched_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(), n,
                                           w.get(), &size, parameters, count));
  Device<float> work(size);
  CHECK(cusolverDnSsyevjBatched(handle, CUSOLVER_EIG_MODE_VECTOR, kLower, n, a.get(), n, w.get(),
                                work.get(), size, info.get(), parameters, count));
  save("values", w);
  save("vectors", a);
  CHECK(cusolverDnDestroySyevjInfo(parameters));
}

LIBRARY_CASE(cholesky_batched) {
  Handle handle;
  const int n = 12, count = 30;
  std::vector<float> host;
  std::vector<float*> addresses;
  for (int i = 0; i < count; ++i) {
    const std::vector<float> one = definite<float>(n, 200 + i);
    host.insert(host.end(), one.begin(), one.end());
  }
  Device<float> a(host);
  for (int i = 0; i < count; ++i) addresses.push_back(a.get() + i * n * n);
  Device<float*> pointers(addresses);
  Device<int> info(count);
  CHECK(cusolverDnSpotrfBatched(handle, kLower, n, pointers.get(), n, info.get(), count));
  save("factors", a);
  save("info", info);
}

LIBRARY_CASE(wide_interface_lu_and_eigenvalues) {
  Handle handle;
  cusolverDnParams_t parameters = nullptr;
  CHECK(cusolverDnCreateParams(&parameters));
  const int64_t n = 140;
  Device<double> a(definite<double>(n, 15)), w(n), e(definite<double>(n, 16));
  Device<int64_t> pivots(n);
  Device<int> info(1);
  size_t device = 0, host = 0;
  CHECK(cusolverDnXgetrf_bufferSize(handle, parameters, n, n, CUDA_R_64F, a.get(), n, CUDA_R_64F,
                                    &device, &host));
  Device<uint8_t> work(device);
  std::vector<uint8_t> host_work(host + 1);
  CHECK(cusolverDnXgetrf(handle, parameters, n, n, CUDA_R_64F, a.get(), n, pivots.get(), CUDA_R_64F,
                         work.get(), device, host_work.data(), host, info.get()));
  save("lu", a);
  save("pivots", pivots);
  CHECK(cusolverDnXsyevd_bufferSize(handle, parameters, CUSOLVER_EIG_MODE_VECTOR, kLower, n,
                                    CUDA_R_64F, e.get(), n, CUDA_R_64F, w.get(), CUDA_R_64F,
                                    &device, &host));
  Device<uint8_t> more(device);
  host_work.resize(host + 1);
  CHECK(cusolverDnXsyevd(handle, parameters, CUSOLVER_EIG_MODE_VECTOR, kLower, n, CUDA_R_64F,
                         e.get(), n, CUDA_R_64F, w.get(), CUDA_R_64F, more.get(), device,
                         host_work.data(), host, info.get()));
  save("values", w);
  save("vectors", e);
  CHECK(cusolverDnDestroyParams(parameters));
}

LIBRARY_CASE(mixed_precision_solve) {
  Handle handle;
  const int n = 128;
  Device<double> a(definite<double>(n, 17)), b(values<double>(n, 18)), x(n);
  Device<int> pivots(n), info(1);
  size_t bytes = 0;
  CHECK(cusolverDnDSgesv_bufferSize(handle, n, 1, a.get(), n, pivots.get(), b.get(), n, x.get(), n,
                                    nullptr, &bytes));
  Device<uint8_t> work(bytes);
  int iterations = 0;
  CHECK(cusolverDnDSgesv(handle, n, 1, a.get(), n, pivots.get(), b.get(), n, x.get(), n, work.get(),
                         bytes, &iterations, info.get()));
  note("iterations %d", iterations);
  save("x", x);
}

LIBRARY_CASE(sparse_cholesky_solve) {
  cusolverSpHandle_t handle = nullptr;
  cusparseMatDescr_t description = nullptr;
  CHECK(cusolverSpCreate(&handle));
  CHECK(cusparseCreateMatDescr(&description));
  const int n = 200;
  std::vector<int> offsets{0}, indices;
  std::vector<double> entries;
  for (int row = 0; row < n; ++row) {
    for (int column : {row - 5, row - 1, row, row + 1, row + 5}) {
      if (column < 0 || column >= n) continue;
      indices.push_back(column);
      entries.push_back(row == column ? 6 : -1);
    }
    offsets.push_back(static_cast<int>(indices.size()));
  }
  Device<int> device_offsets(offsets), device_indices(indices);
  Device<double> device_entries(entries), b(values<double>(n, 19)), x(n);
  int singular = 0;
  CHECK(cusolverSpDcsrlsvchol(handle, n, static_cast<int>(entries.size()), description,
                              device_entries.get(), device_offsets.get(), device_indices.get(),
                              b.get(), 1e-12, 0, x.get(), &singular));
  note("singular %d", singular);
  save("x", x);
  CHECK(cusparseDestroyMatDescr(description));
  CHECK(cusolverSpDestroy(handle));
}
