#include "proxy/evict/certificate_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/cache_dir.h"

namespace tube::proxy {

namespace {

using nlohmann::json;
using policies::Certificate;
using policies::ImageName;

constexpr uint64_t kVersion = 1;

std::string image_text(const ImageName& image) {
  char text[40];
  std::snprintf(text, sizeof text, "%016lx%016lx", image.high, image.low);
  return text;
}

bool parse_image(const json& entry, ImageName* image) {
  if (!entry.is_string()) return false;
  const auto& text = entry.get_ref<const std::string&>();
  if (text.size() != 32) return false;
  const char* const begin = text.data();
  const auto high = std::from_chars(begin, begin + 16, image->high, 16);
  const auto low = std::from_chars(begin + 16, begin + 32, image->low, 16);
  return high.ec == std::errc() && low.ec == std::errc() && high.ptr == begin + 16 &&
         low.ptr == begin + 32;
}

bool parse_text(const json& body, const char* key, std::string* out) {
  const auto found = body.find(key);
  if (found == body.end() || !found->is_string()) return false;
  *out = found->get<std::string>();
  return out->size() <= 256;
}

const json* array_of(const json& body, const char* key, size_t most) {
  const auto found = body.find(key);
  return found != body.end() && found->is_array() && found->size() <= most ? &*found : nullptr;
}

bool is_number(const json& body, const char* key, uint64_t wanted) {
  const auto found = body.find(key);
  return found != body.end() && found->is_number_unsigned() && found->get<uint64_t>() == wanted;
}

}  // namespace

json certificate_json(const Certificate& certificate) {
  json images = json::array();
  for (const ImageName& image : certificate.images) images.push_back(image_text(image));
  return {{"tube_certificate", kVersion},     {"rules", Certificate::kRules},
          {"function", certificate.function}, {"gpu", certificate.gpu},
          {"images", std::move(images)},      {"allocations", certificate.allocations}};
}

Result<Certificate> parse_certificate(const std::string& text) {
  const json body = json::parse(text, nullptr, false);
  if (!body.is_object()) return Error{EINVAL, "it is no certificate"};
  if (!is_number(body, "tube_certificate", kVersion) ||
      !is_number(body, "rules", Certificate::kRules))
    return Error{EINVAL, "it was made by another version of Tube"};
  Certificate certificate;
  const json* const images = array_of(body, "images", Certificate::kMostImages);
  const json* const allocations = array_of(body, "allocations", Certificate::kMostAllocations);
  if (!parse_text(body, "function", &certificate.function) ||
      !parse_text(body, "gpu", &certificate.gpu) || images == nullptr || allocations == nullptr)
    return Error{EINVAL, "it is no certificate"};
  for (const json& entry : *images) {
    ImageName image;
    if (!parse_image(entry, &image)) return Error{EINVAL, "an image's name is wrong"};
    certificate.images.push_back(image);
  }
  std::sort(certificate.images.begin(), certificate.images.end());
  for (const json& entry : *allocations) {
    if (!entry.is_number_unsigned()) return Error{EINVAL, "an allocation's size is wrong"};
    certificate.allocations.push_back(entry.get<uint64_t>());
  }
  return certificate;
}

Result<Certificate> load_certificate(const std::string& function) {
  const std::string path = certificate_path(function);
  if (path.empty()) return Error{ENOENT, "there is no cache folder (TUBE_CACHE)"};
  Result<std::string> text = read_kept_file(path, kMostCertificateBytes);
  if (!text.ok()) return text.error();
  Result<Certificate> certificate = parse_certificate(*text);
  if (!certificate.ok()) return Error{EINVAL, path + ": " + certificate.error().message};
  if (certificate->function != function) return Error{EINVAL, path + " is of another function"};
  return certificate;
}

}  // namespace tube::proxy
