#include "proxy/store/store_options.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/env.h"
#include "base/log.h"

namespace tube::proxy {
namespace {

// Between the commas; "all" is the prefix that every name has.
std::vector<std::string> prefixes(const std::string& list) {
  std::vector<std::string> found;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string prefix = list.substr(at, end - at);
    if (!prefix.empty()) found.push_back(prefix == "all" ? std::string() : std::move(prefix));
    at = end + 1;
  }
  return found;
}

}  // namespace

StoreOptions store_options(const std::string& share, bool verify, const std::string& workflow,
                           const std::string& folder) {
  StoreOptions options;
  options.shared = prefixes(share);
  options.workflow = workflow;
  options.folder = folder;
  options.verify = verify;
  if (const char* text = env_text(Env::kStoreGpu)) {
    const auto bytes = parse_byte_size(text);
    if (bytes.ok()) options.gpu_bytes = *bytes;
    else log_warn("TUBE_STORE_GPU: %s; it has no limit", bytes.error().message.c_str());
  }
  if (const char* text = env_text(Env::kStorePolicy)) {
    const auto order = policies::parse_migration_order(text);
    options.moves = std::string_view(text) != "off";
    if (!order && options.moves)
      log_warn("TUBE_STORE_POLICY=%s: expected queue, lru or off; queue is used", text);
    options.order = order.value_or(policies::MigrationOrder::kQueue);
  }
  return options;
}

}  // namespace tube::proxy
