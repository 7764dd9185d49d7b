// cuSPARSE called directly: formats and conversions, matrix times vector, matrix and sparse matrix,
// solves, sampled products.
#include <cusparse.h>

#include "case.h"

using library::Device;
using library::note;
using library::save;
using library::Stream;
using library::values;

namespace {

class Handle {
 public:
  Handle() { CHECK(cusparseCreate(&handle_)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cusparseDestroy(handle_); }
  operator cusparseHandle_t() const { return handle_; }

 private:
  cusparseHandle_t handle_ = nullptr;
};

template <typename T>
constexpr cudaDataType_t data_type() {
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  else if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
  else if constexpr (std::is_same_v<T, __half>) return CUDA_R_16F;
  else return CUDA_C_32F;
}

// A random CSR matrix on the host: about `density` of its entries, the diagonal always (so that
// solves are possible).
template <typename T>
struct Csr {
  int rows, columns;
  std::vector<int> offsets{0}, indices;
  std::vector<T> entries;

  Csr(int rows, int columns, double density, uint64_t seed, bool lower = false)
      : rows(rows), columns(columns) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < (lower ? row + 1 : columns); ++column) {
        const uint64_t place = static_cast<uint64_t>(row) * columns + column;
        if (row != column && library::unit(seed, place) >= density) continue;
        indices.push_back(column);
        entries.push_back(
            library::make<T>(row == column ? 4 : library::unit(seed + 1, place) - 0.5));
      }
      offsets.push_back(static_cast<int>(indices.size()));
    }
  }
  int64_t count() const { return static_cast<int64_t>(indices.size()); }
};

template <typename T>
struct DeviceCsr {
  explicit DeviceCsr(const Csr<T>& from)
      : offsets(from.offsets), indices(from.indices), entries(from.entries) {
    CHECK(cusparseCreateCsr(&matrix, from.rows, from.columns, from.count(), offsets.get(),
                            indices.get(), entries.get(), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, data_type<T>()));
  }
  DeviceCsr(const DeviceCsr&) = delete;
  DeviceCsr& operator=(const DeviceCsr&) = delete;
  ~DeviceCsr() { cusparseDestroySpMat(matrix); }
  Device<int> offsets, indices;
  Device<T> entries;
  cusparseSpMatDescr_t matrix = nullptr;
};

template <typename T>
struct Vector {
  explicit Vector(const std::vector<T>& from) : data(from) {
    CHECK(cusparseCreateDnVec(&vector, from.size(), data.get(), data_type<T>()));
  }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  ~Vector() { cusparseDestroyDnVec(vector); }
  Device<T> data;
  cusparseDnVecDescr_t vector = nullptr;
};

template <typename T>
struct Dense {
  Dense(int rows, int columns, const std::vector<T>& from) : data(from) {
    CHECK(cusparseCreateDnMat(&matrix, rows, columns, rows, data.get(), data_type<T>(),
                              CUSPARSE_ORDER_COL));
  }
  Dense(const Dense&) = delete;
  Dense& operator=(const Dense&) = delete;
  ~Dense() { cusparseDestroyDnMat(matrix); }
  Device<T> data;
  cusparseDnMatDescr_t matrix = nullptr;
};

// The buffer that a call's ..._bufferSize asked for.
Device<uint8_t> buffer_of(size_t bytes) { return Device<uint8_t>(bytes != 0 ? bytes : 16); }

constexpr cusparseOperation_t kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE,
                              kFlipped = CUSPARSE_OPERATION_TRANSPOSE;

template <typename T, typename Compute = T>
void times_vector(cusparseSpMVAlg_t algorithm, cusparseOperation_t operation) {
  Handle handle;
  DeviceCsr<T> a(Csr<T>(700, 500, 0.03, 1));
  const bool plain = operation == kPlain;
  Vector<T> x(values<T>(plain ? 500 : 700, 2)), y(values<T>(plain ? 700 : 500, 3));
  const Compute alpha = library::make<Compute>(1.5), beta = library::make<Compute>(0.5);
  const cudaDataType_t compute = data_type<Compute>();
  size_t bytes = 0;
  CHECK(cusparseSpMV_bufferSize(handle, operation, &alpha, a.matrix, x.vector, &beta, y.vector,
                                compute, algorithm, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  CHECK(cusparseSpMV(handle, operation, &alpha, a.matrix, x.vector, &beta, y.vector, compute,
                     algorithm, buffer.get()));
  save("y", y.data);
}

template <typename T>
void times_matrix(cusparseSpMMAlg_t algorithm) {
  Handle handle;
  DeviceCsr<T> a(Csr<T>(300, 260, 0.05, 4));
  Dense<T> b(260, 40, values<T>(260 * 40, 5)), c(300, 40, values<T>(300 * 40, 6));
  const T alpha = library::make<T>(1), beta = library::make<T>(0);
  size_t bytes = 0;
  CHECK(cusparseSpMM_bufferSize(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c.matrix,
                                data_type<T>(), algorithm, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  CHECK(cusparseSpMM(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c.matrix,
                     data_type<T>(), algorithm, buffer.get()));
  save("c", c.data);
}

}  // namespace

LIBRARY_CASE(version) {
  Handle handle;
  int version = 0;
  CHECK(cusparseGetVersion(handle, &version));
  note("version %d", version);
}

LIBRARY_CASE(vector_float) { times_vector<float>(CUSPARSE_SPMV_ALG_DEFAULT, kPlain); }
LIBRARY_CASE(vector_float_alg1) { times_vector<float>(CUSPARSE_SPMV_CSR_ALG1, kPlain); }
LIBRARY_CASE(vector_float_alg2) { times_vector<float>(CUSPARSE_SPMV_CSR_ALG2, kPlain); }
LIBRARY_CASE(vector_float_transposed) { times_vector<float>(CUSPARSE_SPMV_CSR_ALG2, kFlipped); }
LIBRARY_CASE(vector_double) { times_vector<double>(CUSPARSE_SPMV_ALG_DEFAULT, kPlain); }
LIBRARY_CASE(vector_complex) { times_vector<float2>(CUSPARSE_SPMV_ALG_DEFAULT, kPlain); }
LIBRARY_CASE(vector_half) { times_vector<__half, float>(CUSPARSE_SPMV_ALG_DEFAULT, kPlain); }
LIBRARY_CASE(matrix_float) { times_matrix<float>(CUSPARSE_SPMM_ALG_DEFAULT); }
LIBRARY_CASE(matrix_double_alg1) { times_matrix<double>(CUSPARSE_SPMM_CSR_ALG1); }
LIBRARY_CASE(matrix_float_alg2) { times_matrix<float>(CUSPARSE_SPMM_CSR_ALG2); }
LIBRARY_CASE(matrix_float_alg3) { times_matrix<float>(CUSPARSE_SPMM_CSR_ALG3); }

LIBRARY_CASE(sparse_times_sparse) {
  Handle handle;
  DeviceCsr<float> a(Csr<float>(200, 180, 0.04, 7)), b(Csr<float>(180, 150, 0.04, 9));
  cusparseSpMatDescr_t c = nullptr;
  CHECK(cusparseCreateCsr(&c, 200, 150, 0, nullptr, nullptr, nullptr, CUSPARSE_INDEX_32I,
                          CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  cusparseSpGEMMDescr_t descriptor = nullptr;
  CHECK(cusparseSpGEMM_createDescr(&descriptor));
  const float alpha = 1, beta = 0;
  size_t first = 0, second = 0;
  const auto algorithm = CUSPARSE_SPGEMM_DEFAULT;
  CHECK(cusparseSpGEMM_workEstimation(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c,
                                      CUDA_R_32F, algorithm, descriptor, &first, nullptr));
  Device<uint8_t> estimation = buffer_of(first);
  CHECK(cusparseSpGEMM_workEstimation(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c,
                                      CUDA_R_32F, algorithm, descriptor, &first, estimation.get()));
  CHECK(cusparseSpGEMM_compute(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c,
                               CUDA_R_32F, algorithm, descriptor, &second, nullptr));
  Device<uint8_t> work = buffer_of(second);
  CHECK(cusparseSpGEMM_compute(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c,
                               CUDA_R_32F, algorithm, descriptor, &second, work.get()));
  int64_t rows = 0, columns = 0, entries = 0;
  CHECK(cusparseSpMatGetSize(c, &rows, &columns, &entries));
  Device<int> offsets(rows + 1), indices(entries);
  Device<float> found(entries);
  CHECK(cusparseCsrSetPointers(c, offsets.get(), indices.get(), found.get()));
  CHECK(cusparseSpGEMM_copy(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c,
                            CUDA_R_32F, algorithm, descriptor));
  note("entries %lld", static_cast<long long>(entries));
  save("offsets", offsets);
  save("indices", indices);
  save("entries", found);
  CHECK(cusparseSpGEMM_destroyDescr(descriptor));
  CHECK(cusparseDestroySpMat(c));
}

LIBRARY_CASE(dense_to_sparse_and_back) {
  Handle handle;
  std::vector<float> sparse = values<float>(120 * 90, 10);
  for (float& value : sparse) value = value < 0.7f ? 0 : value;
  Dense<float> from(120, 90, sparse), back(120, 90, std::vector<float>(120 * 90));
  Device<int> offsets(121);
  cusparseSpMatDescr_t csr = nullptr;
  CHECK(cusparseCreateCsr(&csr, 120, 90, 0, offsets.get(), nullptr, nullptr, CUSPARSE_INDEX_32I,
                          CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  size_t bytes = 0;
  CHECK(cusparseDenseToSparse_bufferSize(handle, from.matrix, csr,
                                         CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  CHECK(cusparseDenseToSparse_analysis(handle, from.matrix, csr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT,
                                       buffer.get()));
  int64_t rows = 0, columns = 0, entries = 0;
  CHECK(cusparseSpMatGetSize(csr, &rows, &columns, &entries));
  Device<int> indices(entries);
  Device<float> found(entries);
  CHECK(cusparseCsrSetPointers(csr, offsets.get(), indices.get(), found.get()));
  CHECK(cusparseDenseToSparse_convert(handle, from.matrix, csr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT,
                                      buffer.get()));
  save("indices", indices);
  save("entries", found);
  size_t more = 0;
  CHECK(cusparseSparseToDense_bufferSize(handle, csr, back.matrix,
                                         CUSPARSE_SPARSETODENSE_ALG_DEFAULT, &more));
  Device<uint8_t> second = buffer_of(more);
  CHECK(cusparseSparseToDense(handle, csr, back.matrix, CUSPARSE_SPARSETODENSE_ALG_DEFAULT,
                              second.get()));
  save("back", back.data);
  CHECK(cusparseDestroySpMat(csr));
}

LIBRARY_CASE(triangular_solve) {
  Handle handle;
  DeviceCsr<double> a(Csr<double>(400, 400, 0.02, 11, true));
  const cusparseFillMode_t lower = CUSPARSE_FILL_MODE_LOWER;
  const cusparseDiagType_t diagonal = CUSPARSE_DIAG_TYPE_NON_UNIT;
  CHECK(cusparseSpMatSetAttribute(a.matrix, CUSPARSE_SPMAT_FILL_MODE,
                                  const_cast<cusparseFillMode_t*>(&lower), sizeof(lower)));
  CHECK(cusparseSpMatSetAttribute(a.matrix, CUSPARSE_SPMAT_DIAG_TYPE,
                                  const_cast<cusparseDiagType_t*>(&diagonal), sizeof(diagonal)));
  Vector<double> x(values<double>(400, 12)), y(std::vector<double>(400));
  cusparseSpSVDescr_t descriptor = nullptr;
  CHECK(cusparseSpSV_createDescr(&descriptor));
  const double alpha = 1;
  size_t bytes = 0;
  CHECK(cusparseSpSV_bufferSize(handle, kPlain, &alpha, a.matrix, x.vector, y.vector, CUDA_R_64F,
                                CUSPARSE_SPSV_ALG_DEFAULT, descriptor, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  CHECK(cusparseSpSV_analysis(handle, kPlain, &alpha, a.matrix, x.vector, y.vector, CUDA_R_64F,
                              CUSPARSE_SPSV_ALG_DEFAULT, descriptor, buffer.get()));
  CHECK(cusparseSpSV_solve(handle, kPlain, &alpha, a.matrix, x.vector, y.vector, CUDA_R_64F,
                           CUSPARSE_SPSV_ALG_DEFAULT, descriptor));
  save("y", y.data);
  CHECK(cusparseSpSV_destroyDescr(descriptor));
}

LIBRARY_CASE(sampled_product) {
  Handle handle;
  DeviceCsr<float> c(Csr<float>(100, 110, 0.05, 13));
  Dense<float> a(100, 30, values<float>(3000, 14)), b(30, 110, values<float>(3300, 15));
  const float alpha = 1, beta = 1;
  size_t bytes = 0;
  CHECK(cusparseSDDMM_bufferSize(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta,
                                 c.matrix, CUDA_R_32F, CUSPARSE_SDDMM_ALG_DEFAULT, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  CHECK(cusparseSDDMM(handle, kPlain, kPlain, &alpha, a.matrix, b.matrix, &beta, c.matrix,
                      CUDA_R_32F, CUSPARSE_SDDMM_ALG_DEFAULT, buffer.get()));
  save("c", c.entries);
}

LIBRARY_CASE(format_conversions) {
  Handle handle;
  const Csr<float> host(150, 130, 0.06, 16);
  DeviceCsr<float> csr(host);
  Device<int> rows(host.count()), offsets(131), indices(host.count());
  Device<float> found(host.count());
  CHECK(cusparseXcsr2coo(handle, csr.offsets.get(), host.count(), 150, rows.get(),
                         CUSPARSE_INDEX_BASE_ZERO));
  save("coo_rows", rows);
  size_t bytes = 0;
  CHECK(cusparseCsr2cscEx2_bufferSize(
      handle, 150, 130, host.count(), csr.entries.get(), csr.offsets.get(), csr.indices.get(),
      found.get(), offsets.get(), indices.get(), CUDA_R_32F, CUSPARSE_ACTION_NUMERIC,
      CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG1, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  CHECK(cusparseCsr2cscEx2(handle, 150, 130, host.count(), csr.entries.get(), csr.offsets.get(),
                           csr.indices.get(), found.get(), offsets.get(), indices.get(), CUDA_R_32F,
                           CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG1,
                           buffer.get()));
  save("csc_offsets", offsets);
  save("csc_indices", indices);
  save("csc_entries", found);
}

LIBRARY_CASE(gather_scatter_axpby) {
  Handle handle;
  std::vector<int> places;
  for (int i = 0; i < 200; ++i) places.push_back(i * 5 + i % 3);
  Device<int> indices(places);
  Device<float> entries(values<float>(200, 17));
  cusparseSpVecDescr_t sparse = nullptr;
  CHECK(cusparseCreateSpVec(&sparse, 1000, 200, indices.get(), entries.get(), CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  Vector<float> y(values<float>(1000, 18));
  const float alpha = 2, beta = 0.5f;
  CHECK(cusparseAxpby(handle, &alpha, sparse, &beta, y.vector));
  save("y", y.data);
  CHECK(cusparseGather(handle, y.vector, sparse));
  save("gathered", entries);
  CHECK(cusparseScatter(handle, sparse, y.vector));
  save("scattered", y.data);
  CHECK(cusparseDestroySpVec(sparse));
}

LIBRARY_CASE(own_stream) {
  Stream stream(cudaStreamNonBlocking);
  Handle handle;
  CHECK(cusparseSetStream(handle, stream));
  DeviceCsr<float> a(Csr<float>(600, 600, 0.02, 19));
  Vector<float> x(values<float>(600, 20)), y(std::vector<float>(600));
  const float alpha = 0.2f, beta = 0;
  size_t bytes = 0;
  CHECK(cusparseSpMV_bufferSize(handle, kPlain, &alpha, a.matrix, x.vector, &beta, y.vector,
                                CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, &bytes));
  Device<uint8_t> buffer = buffer_of(bytes);
  for (int i = 0; i < 6; ++i) {
    auto from = i % 2 ? y.vector : x.vector, to = i % 2 ? x.vector : y.vector;
    CHECK(cusparseSpMV(handle, kPlain, &alpha, a.matrix, from, &beta, to, CUDA_R_32F,
                       CUSPARSE_SPMV_CSR_ALG2, buffer.get()));
  }
  CHECK(cudaStreamSynchronize(stream));
  save("x", x.data);
}
