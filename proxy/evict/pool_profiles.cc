#include "proxy/evict/pool_profiles.h"

#include <algorithm>
#include <cerrno>

#include <nlohmann/json.hpp>

#include "base/cache_dir.h"
#include "base/log.h"
#include "protocol/device_info.h"

namespace tube::proxy {

namespace {

using nlohmann::json;
using policies::PoolDemand;
using policies::SizeProfile;

constexpr uint64_t kPoolVersion = 1;
constexpr size_t kMostBytes = 256u << 10;

uint64_t number(const json& body, const char* key) {
  const auto found = body.find(key);
  return found != body.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

// Of too large a count as much as fits.
template <size_t N>
bool read_counts(const json& body, const char* key, std::array<uint32_t, N>* out) {
  const auto found = body.find(key);
  if (found == body.end() || !found->is_array() || found->size() != N) return false;
  for (size_t i = 0; i < N; ++i) {
    const json& entry = (*found)[i];
    if (!entry.is_number_unsigned()) return false;
    (*out)[i] = static_cast<uint32_t>(std::min<uint64_t>(entry.get<uint64_t>(), UINT32_MAX));
  }
  return true;
}

bool learnt(const SizeProfile& profile) {
  return std::ranges::any_of(profile.held, [](uint32_t count) { return count != 0; });
}

}  // namespace

std::string pool_profile_text(const PoolDemand& demand) {
  json sizes = json::array();
  for (const PoolDemand::Size& size : demand.sizes()) {
    if (size.bytes == 0 || !learnt(size.profile)) continue;
    sizes.push_back({{"gpu", size.gpu},
                     {"bytes", size.bytes},
                     {"distance_ns", size.profile.distance_ns},
                     {"intervals", size.profile.intervals},
                     {"held", size.profile.held}});
  }
  return sizes.empty() ? ""
                       : json({{"tube_pool", kPoolVersion}, {"sizes", std::move(sizes)}}).dump();
}

Result<PoolDemand> parse_pool_profile(const std::string& text) {
  const json body = json::parse(text, nullptr, false);
  const auto sizes = body.is_object() ? body.find("sizes") : body.end();
  if (!body.is_object() || number(body, "tube_pool") != kPoolVersion || sizes == body.end() ||
      !sizes->is_array() || sizes->size() > PoolDemand::kSizes)
    return Error{EINVAL, "it is no profile of this version"};
  PoolDemand demand;
  for (const json& entry : *sizes) {
    SizeProfile profile;
    if (!entry.is_object() || number(entry, "gpu") >= info::kMaxDevices ||
        !read_counts(entry, "intervals", &profile.intervals) ||
        !read_counts(entry, "held", &profile.held))
      return Error{EINVAL, "a size's counts are wrong"};
    profile.distance_ns = number(entry, "distance_ns");
    (void)demand.restore(static_cast<uint32_t>(number(entry, "gpu")), number(entry, "bytes"),
                         profile);
  }
  return demand;
}

PoolDemand load_pool_profile(const std::string& function) {
  const std::string path = pool_profile_path(function);
  if (path.empty()) return {};
  const Result<std::string> text = read_kept_file(path, kMostBytes);
  if (!text.ok()) return {};
  const Result<PoolDemand> demand = parse_pool_profile(*text);
  if (!demand.ok()) log_warn("%s: %s", path.c_str(), demand.error().message.c_str());
  return demand.ok() ? *demand : PoolDemand();
}

void keep_pool_profile(const std::string& function, const PoolDemand& demand) {
  const std::string path = pool_profile_path(function), text = pool_profile_text(demand);
  if (path.empty() || text.empty()) return;
  if (const Status status = write_kept_file(path, text); !status.ok())
    log_warn("what the pool has learnt of function '%s' is not kept: %s", function.c_str(),
             status.error().message.c_str());
}

}  // namespace tube::proxy
