// cuFFT called directly: one to three dimensions, real and complex, both precisions and half,
// batches, strides, work areas, streams.
#include <cufft.h>
#include <cufftXt.h>

#include "case.h"

using library::captured;
using library::Device;
using library::note;
using library::save;
using library::Stream;
using library::values;

namespace {

class Plan {
 public:
  Plan() { CHECK(cufftCreate(&plan_)); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { cufftDestroy(plan_); }
  operator cufftHandle() const { return plan_; }

 private:
  cufftHandle plan_ = 0;
};

size_t product(const std::vector<int>& sizes) {
  size_t all = 1;
  for (int size : sizes) all *= size;
  return all;
}

// Forward and back again, `batch` transforms of the given sizes.
void complex_both_ways(std::vector<int> sizes, int batch) {
  Plan plan;
  size_t work = 0;
  CHECK(cufftMakePlanMany(plan, sizes.size(), sizes.data(), nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C,
                          batch, &work));
  Device<float2> data(values<float2>(product(sizes) * batch, 1)), spectrum(product(sizes) * batch);
  CHECK(cufftExecC2C(plan, data.get(), spectrum.get(), CUFFT_FORWARD));
  save("spectrum", spectrum);
  CHECK(cufftExecC2C(plan, spectrum.get(), spectrum.get(), CUFFT_INVERSE));
  save("back", spectrum);
}

void real_both_ways(std::vector<int> sizes, int batch) {
  std::vector<int> half = sizes;
  half.back() = half.back() / 2 + 1;
  Plan forward, back;
  size_t work = 0;
  CHECK(cufftMakePlanMany(forward, sizes.size(), sizes.data(), nullptr, 1, 0, nullptr, 1, 0,
                          CUFFT_R2C, batch, &work));
  CHECK(cufftMakePlanMany(back, sizes.size(), sizes.data(), nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2R,
                          batch, &work));
  Device<float> data(values<float>(product(sizes) * batch, 2));
  Device<float2> spectrum(product(half) * batch);
  CHECK(cufftExecR2C(forward, data.get(), spectrum.get()));
  save("spectrum", spectrum);
  CHECK(cufftExecC2R(back, spectrum.get(), data.get()));
  save("back", data);
}

}  // namespace

LIBRARY_CASE(version) {
  int version = 0;
  CHECK(cufftGetVersion(&version));
  note("version %d", version);
}

LIBRARY_CASE(complex_1d_power_of_two) { complex_both_ways({4096}, 1); }
LIBRARY_CASE(complex_1d_batched) { complex_both_ways({512}, 100); }
LIBRARY_CASE(complex_1d_odd) { complex_both_ways({945}, 7); }
LIBRARY_CASE(complex_1d_prime) { complex_both_ways({10007}, 3); }
LIBRARY_CASE(complex_1d_long) { complex_both_ways({1 << 20}, 1); }
LIBRARY_CASE(complex_2d) { complex_both_ways({96, 160}, 4); }
LIBRARY_CASE(complex_3d) { complex_both_ways({24, 32, 40}, 3); }
LIBRARY_CASE(real_1d) { real_both_ways({3000}, 5); }
LIBRARY_CASE(real_2d) { real_both_ways({128, 120}, 3); }
LIBRARY_CASE(real_3d) { real_both_ways({20, 30, 36}, 2); }

LIBRARY_CASE(double_precision) {
  Plan plan, real;
  size_t work = 0;
  CHECK(cufftMakePlan2d(plan, 50, 60, CUFFT_Z2Z, &work));
  Device<double2> data(values<double2>(50 * 60, 3)), spectrum(50 * 60);
  CHECK(cufftExecZ2Z(plan, data.get(), spectrum.get(), CUFFT_FORWARD));
  save("complex", spectrum);
  CHECK(cufftMakePlan1d(real, 2000, CUFFT_D2Z, 4, &work));
  Device<double> line(values<double>(8000, 4));
  Device<double2> out(1001 * 4);
  CHECK(cufftExecD2Z(real, line.get(), out.get()));
  save("real", out);
}

LIBRARY_CASE(half_precision) {
  Plan plan;
  size_t work = 0;
  long long size = 1024;
  CHECK(cufftXtMakePlanMany(plan, 1, &size, nullptr, 1, 0, CUDA_C_16F, nullptr, 1, 0, CUDA_C_16F, 8,
                            &work, CUDA_C_16F));
  Device<__half> data(values<__half>(2 * 1024 * 8, 5, -0.1, 0.1)), spectrum(2 * 1024 * 8);
  CHECK(cufftXtExec(plan, data.get(), spectrum.get(), CUFFT_FORWARD));
  save("spectrum", spectrum);
}

LIBRARY_CASE(strided_batches) {
  Plan plan;
  size_t work = 0;
  int size = 128, embed = 128;
  // Columns of a 128 x 64 matrix: elements 64 apart, transforms one apart.
  CHECK(cufftMakePlanMany(plan, 1, &size, &embed, 64, 1, &embed, 64, 1, CUFFT_C2C, 64, &work));
  Device<float2> data(values<float2>(128 * 64, 6));
  CHECK(cufftExecC2C(plan, data.get(), data.get(), CUFFT_FORWARD));
  save("columns", data);
}

LIBRARY_CASE(own_work_area_and_stream) {
  Stream stream(cudaStreamNonBlocking);
  Plan plan;
  size_t work = 0, asked = 0;
  CHECK(cufftSetAutoAllocation(plan, 0));
  CHECK(cufftMakePlan1d(plan, 10007, CUFFT_C2C, 2, &work));
  CHECK(cufftGetSize(plan, &asked));
  Device<uint8_t> area(asked ? asked : 1);
  CHECK(cufftSetWorkArea(plan, area.get()));
  CHECK(cufftSetStream(plan, stream));
  Device<float2> data(values<float2>(20014, 7));
  for (int i = 0; i < 3; ++i)
    CHECK(cufftExecC2C(plan, data.get(), data.get(), i % 2 ? CUFFT_INVERSE : CUFFT_FORWARD));
  CHECK(cudaStreamSynchronize(stream));
  save("data", data);
  note("work %zu", asked);
}

LIBRARY_CASE(captured_transforms) {
  Stream stream;
  Plan plan;
  size_t work = 0;
  CHECK(cufftMakePlan2d(plan, 64, 64, CUFFT_C2C, &work));
  CHECK(cufftSetStream(plan, stream));
  Device<float2> data(values<float2>(4096, 8, -0.01, 0.01)), out(4096);
  CHECK(cufftExecC2C(plan, data.get(), out.get(), CUFFT_FORWARD));
  CHECK(cudaStreamSynchronize(stream));
  captured(stream, 2, [&] { CHECK(cufftExecC2C(plan, data.get(), data.get(), CUFFT_FORWARD)); });
  save("data", data);
  save("out", out);
}

LIBRARY_CASE(many_plans) {
  Device<float2> data(values<float2>(64 * 40, 9));
  std::vector<Plan> plans(40);
  for (int i = 0; i < 40; ++i) {
    size_t work = 0;
    CHECK(cufftMakePlan1d(plans[i], 24 + i, CUFFT_C2C, 1, &work));
  }
  for (int i = 0; i < 40; ++i)
    CHECK(cufftExecC2C(plans[i], data.get() + 64 * i, data.get() + 64 * i, CUFFT_FORWARD));
  save("data", data);
}

LIBRARY_CASE(bad_arguments) {
  Plan plan;
  size_t work = 0;
  note("negative size %d", cufftMakePlan1d(plan, -5, CUFFT_C2C, 1, &work));
  note("not made %d", cufftExecC2C(plan, nullptr, nullptr, CUFFT_FORWARD));
  note("unknown plan %d", cufftDestroy(123456));
}
