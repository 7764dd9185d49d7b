#include "proxy/evict/known_function.h"

#include <cerrno>

#include <nlohmann/json.hpp>

#include "base/cache_dir.h"
#include "base/log.h"
#include "proxy/evict/certificate_file.h"
#include "proxy/evict/residency.h"
#include "proxy/gpu/driver_log.h"

namespace tube::proxy {

using nlohmann::json;
using policies::Behaviour;

void KnownFunction::begin(const KnownFunctions& options, Who who) {
  options_ = options;
  who_ = std::move(who);
  if (!options_.profile.empty()) {
    mode_ = Mode::kProfiled;
    behaviour_.begin(nullptr);
    residency_.set_profiled();
    residency_.lazy().set_by_address(true);
    watched_ = residency_.lazy().by_address();
  } else if (who_.lazy) {
    load_certificate();
  }
}

void KnownFunction::load_certificate() {
  const auto certificate = proxy::load_certificate(who_.name);
  std::string why;
  if (!certificate.ok())
    why = certificate.error().code == ENOENT ? "there is no certificate (tubectl profile)"
                                             : certificate.error().message;
  else if (certificate->gpu != who_.gpu)
    why = "its certificate is for another GPU, " + certificate->gpu;
  if (!why.empty()) {
    log_warn(
        "function '%s' (pid %d): its memory is backed before its next work, not by address: %s",
        who_.name.c_str(), who_.pid, why.c_str());
    return;
  }
  mode_ = Mode::kCertified;
  behaviour_.begin(&*certificate);
  residency_.lazy().set_by_address(true);
}

void KnownFunction::departs(const std::string& why) {
  if (mode_ != Mode::kCertified) return;
  mode_ = Mode::kNone;
  residency_.back_at_once(why.c_str());
}

void KnownFunction::loads(uint64_t low, uint64_t high) {
  if (mode_ == Mode::kNone) return;
  if (behaviour_.loads({low, high}) == Behaviour::Step::kImage)
    departs("it loads an image that its certificate does not know");
}

void KnownFunction::allocates(uint64_t bytes) {
  if (mode_ == Mode::kNone) return;
  const size_t number = behaviour_.allocations() + 1;
  if (behaviour_.allocates(bytes) == Behaviour::Step::kAllocation)
    departs("its allocation " + std::to_string(number) + ", of " + std::to_string(bytes) +
            " bytes, is not the one of its certificate");
}

void KnownFunction::write(const std::string& file, const std::string& content) const {
  const std::string path =
      options_.profile + "/" + file + "-" + std::to_string(who_.session) + ".json";
  if (const Status status = write_kept_file(path, content); !status.ok())
    log_error("the profile cannot be written: %s", status.error().message.c_str());
}

void KnownFunction::faulted(const std::string& error, const std::vector<std::string>& kernels) {
  if (mode_ != Mode::kProfiled || faulted_) return;
  faulted_ = true;
  json missed = json::array();
  const auto lines = options_.log != nullptr ? options_.log->lines() : std::vector<std::string>();
  for (const std::string& line : lines) {
    for (const uint64_t address : addresses_in(line)) {
      LazyBlocks::Found found;
      if (residency_.lazy().find(address, &found))
        missed.push_back(
            {{"address", address}, {"allocation", found.address}, {"bytes", found.bytes}});
    }
  }
  json waiting = json::array();
  for (const LazyBlocks::Found& each : residency_.lazy().waiting())
    waiting.push_back({{"allocation", each.address}, {"bytes", each.bytes}});
  write("fault", json({{"function", who_.name},
                       {"pid", who_.pid},
                       {"error", error},
                       {"kernels", kernels},
                       {"missed", std::move(missed)},
                       {"waiting", std::move(waiting)},
                       {"driver", lines}})
                     .dump());
}

void KnownFunction::end(bool whole) {
  if (mode_ != Mode::kProfiled) return;
  policies::Certificate seen = behaviour_.seen();
  const bool used = !seen.allocations.empty() || !seen.images.empty();
  seen.function = who_.name;
  seen.gpu = who_.gpu;
  const LazyBlocks& lazy = residency_.lazy();
  uint64_t untouched = 0;
  for (const LazyBlocks::Found& each : lazy.waiting()) untouched += each.bytes;
  write("run", json({{"function", who_.name},
                     {"pid", who_.pid},
                     {"used", used},
                     {"whole", whole},
                     {"faulted", faulted_},
                     {"fits", seen.fits()},
                     {"watched", watched_},
                     {"by_address", lazy.by_address()},
                     {"unsure", residency_.unsure()},
                     {"not_tried", lazy.not_tried()},
                     {"untouched_bytes", untouched},
                     {"promised", lazy.counts().promised.load()},
                     {"backed", lazy.counts().backed.load()},
                     {"named", lazy.counts().named.load()},
                     {"certificate", seen.fits() ? certificate_json(seen) : json()}})
                   .dump());
}

}  // namespace tube::proxy
