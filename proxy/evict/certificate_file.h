// Certificates (policies/memory/certificate.h) as JSON files, one for each name of a function:
// CACHE/certificates/NAME-HASH.json, written by `tubectl profile`, read by the proxy when a
// function of that name asks for its memory by address.
//
// Nothing of a file is believed but its form: sizes are bounded before they are used, and a file of
// another version or other rules is none. What a wrong certificate does is what the function itself
// could do: fault its neighbours. So the file must belong to the user, and to nobody else.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "policies/memory/certificate.h"

namespace tube::proxy {

inline constexpr size_t kMostCertificateBytes = 4u << 20;

nlohmann::json certificate_json(const policies::Certificate& certificate);
// Says what is wrong with it.
Result<policies::Certificate> parse_certificate(const std::string& text);
// Reads the function's; error code ENOENT when there is none. May wait for the disk.
Result<policies::Certificate> load_certificate(const std::string& function);

}  // namespace tube::proxy
