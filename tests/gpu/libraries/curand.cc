// cuRAND called directly: every generator on the device and on the host, all distributions, seeds,
// offsets, orderings, streams.
#include <curand.h>

#include "case.h"

using library::Device;
using library::note;
using library::save;
using library::Stream;

namespace {

constexpr size_t kCount = 20000;

class Generator {
 public:
  explicit Generator(curandRngType_t type, bool host = false) {
    if (host) {
      CHECK(curandCreateGeneratorHost(&generator_, type));
    } else {
      CHECK(curandCreateGenerator(&generator_, type));
    }
  }
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  ~Generator() { curandDestroyGenerator(generator_); }
  operator curandGenerator_t() const { return generator_; }

 private:
  curandGenerator_t generator_ = nullptr;
};

void pseudo(curandRngType_t type) {
  Generator generator(type);
  CHECK(curandSetPseudoRandomGeneratorSeed(generator, 1234));
  Device<unsigned> bits(kCount);
  Device<float> floats(kCount);
  Device<double> doubles(kCount);
  CHECK(curandGenerate(generator, bits.get(), kCount));
  save("bits", bits);
  CHECK(curandGenerateUniform(generator, floats.get(), kCount));
  save("uniform", floats);
  CHECK(curandGenerateNormal(generator, floats.get(), kCount, 1.0f, 2.0f));
  save("normal", floats);
  CHECK(curandGenerateLogNormal(generator, floats.get(), kCount, 0.0f, 0.5f));
  save("log_normal", floats);
  CHECK(curandGenerateUniformDouble(generator, doubles.get(), kCount));
  save("uniform_double", doubles);
  CHECK(curandGenerateNormalDouble(generator, doubles.get(), kCount, -1.0, 0.25));
  save("normal_double", doubles);
  CHECK(curandGeneratePoisson(generator, bits.get(), kCount, 7.5));
  save("poisson", bits);
}

void quasi(curandRngType_t type, unsigned dimensions) {
  Generator generator(type);
  CHECK(curandSetQuasiRandomGeneratorDimensions(generator, dimensions));
  Device<float> floats(kCount);
  Device<double> doubles(kCount);
  CHECK(curandGenerateUniform(generator, floats.get(), kCount));
  save("uniform", floats);
  CHECK(curandGenerateNormalDouble(generator, doubles.get(), kCount, 0.0, 1.0));
  save("normal", doubles);
}

}  // namespace

LIBRARY_CASE(version) {
  int version = 0;
  CHECK(curandGetVersion(&version));
  note("version %d", version);
}

LIBRARY_CASE(xorwow) { pseudo(CURAND_RNG_PSEUDO_XORWOW); }
LIBRARY_CASE(mrg32k3a) { pseudo(CURAND_RNG_PSEUDO_MRG32K3A); }
LIBRARY_CASE(mtgp32) { pseudo(CURAND_RNG_PSEUDO_MTGP32); }
LIBRARY_CASE(mt19937) { pseudo(CURAND_RNG_PSEUDO_MT19937); }
LIBRARY_CASE(philox) { pseudo(CURAND_RNG_PSEUDO_PHILOX4_32_10); }
LIBRARY_CASE(sobol32) { quasi(CURAND_RNG_QUASI_SOBOL32, 20); }
LIBRARY_CASE(scrambled_sobol32) { quasi(CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, 10); }
LIBRARY_CASE(sobol64) { quasi(CURAND_RNG_QUASI_SOBOL64, 20); }
LIBRARY_CASE(scrambled_sobol64) { quasi(CURAND_RNG_QUASI_SCRAMBLED_SOBOL64, 10); }

LIBRARY_CASE(sobol64_bits) {
  Generator generator(CURAND_RNG_QUASI_SOBOL64);
  Device<unsigned long long> bits(1000);
  CHECK(curandGenerateLongLong(generator, bits.get(), 1000));
  save("bits", bits);
}

LIBRARY_CASE(offset_and_reseed) {
  Generator generator(CURAND_RNG_PSEUDO_PHILOX4_32_10);
  CHECK(curandSetPseudoRandomGeneratorSeed(generator, 42));
  CHECK(curandSetGeneratorOffset(generator, 1000));
  Device<unsigned> bits(500);
  CHECK(curandGenerate(generator, bits.get(), 500));
  save("offset", bits);
  CHECK(curandSetPseudoRandomGeneratorSeed(generator, 43));
  CHECK(curandGenerateSeeds(generator));
  CHECK(curandGenerate(generator, bits.get(), 500));
  save("reseeded", bits);
}

LIBRARY_CASE(orderings) {
  for (curandOrdering_t order :
       {CURAND_ORDERING_PSEUDO_DEFAULT, CURAND_ORDERING_PSEUDO_BEST, CURAND_ORDERING_PSEUDO_LEGACY,
        CURAND_ORDERING_PSEUDO_DYNAMIC, CURAND_ORDERING_PSEUDO_SEEDED}) {
    Generator generator(CURAND_RNG_PSEUDO_XORWOW);
    const curandStatus_t status = curandSetGeneratorOrdering(generator, order);
    note("ordering %d status %d", order, status);
    if (status != CURAND_STATUS_SUCCESS) continue;
    Device<float> floats(3000);
    CHECK(curandGenerateUniform(generator, floats.get(), 3000));
    save(("ordering" + std::to_string(order)).c_str(), floats);
  }
}

LIBRARY_CASE(on_the_host) {
  Generator generator(CURAND_RNG_PSEUDO_MRG32K3A, true);
  CHECK(curandSetPseudoRandomGeneratorSeed(generator, 7));
  std::vector<float> floats(1000);
  CHECK(curandGenerateUniform(generator, floats.data(), floats.size()));
  save("uniform", floats);
}

LIBRARY_CASE(own_stream) {
  Stream stream(cudaStreamNonBlocking);
  Generator generator(CURAND_RNG_PSEUDO_XORWOW);
  CHECK(curandSetStream(generator, stream));
  Device<float> floats(1 << 20);
  for (int i = 0; i < 5; ++i)
    CHECK(curandGenerateNormal(generator, floats.get(), floats.count(), 0, 1));
  CHECK(cudaStreamSynchronize(stream));
  save("normal", floats);
}

LIBRARY_CASE(bad_arguments) {
  Generator generator(CURAND_RNG_PSEUDO_XORWOW), sobol(CURAND_RNG_QUASI_SOBOL32);
  Device<float> floats(10);
  note("odd count of normals %d", curandGenerateNormal(generator, floats.get(), 3, 0, 1));
  note("dimensions of a pseudo generator %d",
       curandSetQuasiRandomGeneratorDimensions(generator, 3));
  note("too many dimensions %d", curandSetQuasiRandomGeneratorDimensions(sobol, 20001));
}
