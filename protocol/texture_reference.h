// A texture reference of cuTexRefCreate: a record of settings and of what is bound to it, by
// cuda.h's words.
//
// No kernel can read one (no compiler makes references any more), so it needs no GPU: the hook
// keeps it in the process and the simulated GPU keeps the same. Plain data; the caller locks. Every
// function answers the driver's code: an H200's takes modes, formats and flags that do not exist,
// so they are numbers here.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/cuda_api.h"
#include "protocol/array_format.h"

namespace tube {

class TextureReference {
 public:
  static constexpr uint64_t kAlignment = 512;      // CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
  static constexpr uint64_t kPitchAlignment = 32;  // CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT

  // `format`, `channels`: the array's own, which replace what was set.
  CUresult bind_array(CUarray array, unsigned flags, CUarray_format format, unsigned channels) {
    unbind();
    array_ = array;
    if ((flags & CU_TRSA_OVERRIDE_FORMAT) == 0) return CUDA_SUCCESS;
    format_ = format;
    channels_ = static_cast<int>(channels);
    return CUDA_SUCCESS;
  }
  CUresult bind_mipmapped(CUmipmappedArray array) {
    unbind();
    mipmapped_ = array;
    return CUDA_SUCCESS;
  }
  CUresult bind_address(size_t* offset, CUdeviceptr address) {
    const uint64_t rest = address % kAlignment;
    if (rest != 0 && offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (offset != nullptr) *offset = rest;
    unbind();
    address_ = address;
    return CUDA_SUCCESS;
  }
  CUresult bind_address_2d(const CUDA_ARRAY_DESCRIPTOR* d, CUdeviceptr address, size_t pitch) {
    if (d == nullptr || address % kAlignment != 0 || pitch % kPitchAlignment != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const uint64_t element = array_element_bytes(static_cast<uint32_t>(d->Format), d->NumChannels);
    if (element == 0 || d->Width == 0 || d->Height == 0 || d->Width > (1u << 20) ||
        pitch < d->Width * element)
      return CUDA_ERROR_INVALID_VALUE;
    unbind();
    address_ = address;
    format_ = d->Format;
    channels_ = static_cast<int>(d->NumChannels);
    return CUDA_SUCCESS;
  }
  CUresult set_format(CUarray_format format, int channels) {
    if (channels != 1 && channels != 2 && channels != 4)
      return CUDA_ERROR_INVALID_VALUE;  // of the format nothing is asked
    format_ = format;
    channels_ = channels;
    return CUDA_SUCCESS;
  }
  CUresult set_address_mode(int dim, CUaddress_mode mode) {
    if (dim < 0 || dim > 2) return CUDA_ERROR_INVALID_VALUE;
    address_modes_[dim] = mode;
    return CUDA_SUCCESS;
  }
  CUresult set_filter(CUfilter_mode mode) { return set(&filter_, mode); }
  CUresult set_mipmap_filter(CUfilter_mode mode) { return set(&mipmap_filter_, mode); }
  CUresult set_bias(float bias) { return set(&bias_, bias); }
  CUresult set_clamp(float low, float high) {
    low_ = low;
    high_ = high;
    return CUDA_SUCCESS;
  }
  CUresult set_anisotropy(unsigned most) { return set(&anisotropy_, static_cast<int>(most)); }
  CUresult set_border(const float* color) {
    if (color == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(border_, color, sizeof border_);
    return CUDA_SUCCESS;
  }
  CUresult set_flags(unsigned flags) {
    constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
    return (flags & ~kKnown) != 0 ? CUDA_ERROR_INVALID_VALUE : set(&flags_, flags);
  }

  CUresult address(CUdeviceptr* out) const {
    return out == nullptr || address_ == 0 ? CUDA_ERROR_INVALID_VALUE : get(out, address_);
  }
  CUresult array(CUarray* out) const {
    return out == nullptr || array_ == nullptr ? CUDA_ERROR_INVALID_VALUE : get(out, array_);
  }
  CUresult mipmapped(CUmipmappedArray* out) const {
    return out == nullptr || mipmapped_ == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                   : get(out, mipmapped_);
  }
  CUresult address_mode(CUaddress_mode* out, int dim) const {
    return dim < 0 || dim > 2 ? CUDA_ERROR_INVALID_VALUE : get(out, address_modes_[dim]);
  }
  CUresult filter(CUfilter_mode* out) const { return get(out, filter_); }
  CUresult mipmap_filter(CUfilter_mode* out) const { return get(out, mipmap_filter_); }
  CUresult format(CUarray_format* format, int* channels) const {
    if (format != nullptr) *format = format_;
    if (channels != nullptr) *channels = channels_;
    return CUDA_SUCCESS;
  }
  CUresult bias(float* out) const { return get(out, bias_); }
  CUresult clamp(float* low, float* high) const {
    if (low == nullptr || high == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *low = low_;
    *high = high_;
    return CUDA_SUCCESS;
  }
  CUresult anisotropy(int* out) const { return get(out, anisotropy_); }
  CUresult border(float* out) const {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out, border_, sizeof border_);
    return CUDA_SUCCESS;
  }
  CUresult flags(unsigned* out) const { return get(out, flags_); }

 private:
  void unbind() {
    array_ = nullptr;
    mipmapped_ = nullptr;
    address_ = 0;
  }
  template <class T>
  static CUresult set(T* field, T value) {
    *field = value;
    return CUDA_SUCCESS;
  }
  template <class T>
  static CUresult get(T* out, T value) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = value;
    return CUDA_SUCCESS;
  }

  CUarray array_ = nullptr;
  CUmipmappedArray mipmapped_ = nullptr;
  CUdeviceptr address_ = 0;
  CUarray_format format_ = CU_AD_FORMAT_FLOAT;
  int channels_ = 1;
  CUaddress_mode address_modes_[3] = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP,
                                      CU_TR_ADDRESS_MODE_CLAMP};
  CUfilter_mode filter_ = CU_TR_FILTER_MODE_POINT;
  CUfilter_mode mipmap_filter_ = CU_TR_FILTER_MODE_POINT;
  float bias_ = 0, low_ = 0, high_ = 0;
  int anisotropy_ = 0;
  float border_[4] = {};
  unsigned flags_ = 0;
};

}  // namespace tube
