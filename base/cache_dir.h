// The folder for what is kept between runs: $TUBE_CACHE, else $XDG_CACHE_HOME/tube, else
// ~/.cache/tube; TUBE_CACHE=off: nowhere. Everything in it can be deleted at any time, and is
// believed no more than any file of the user's: readers bound its size, check its owner and its
// form.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace tube {

// Where it is or would be; empty: nowhere.
std::string cache_dir_path();

// A file of this user's that nobody else can write, of at most `most_bytes`. Error code: errno,
// ENOENT when there is none.
Result<std::string> read_kept_file(const std::string& path, size_t most_bytes);
// Replaces the file in one step, making its folder and the one above where they are missing. A
// reader sees the old content or the new one.
Status write_kept_file(const std::string& path, const std::string& content);
// A name for the file that holds what is kept for `name`: letters, digits and a hash, so that two
// names never share one.
std::string kept_file_name(const std::string& name);
// The file that holds which kernels a workflow's functions used (proxy/code/kernel_record.h).
// Empty: nowhere.
std::string kernel_record_path(const std::string& workflow);
// The file of a function's certificate (proxy/evict/certificate_file.h). Empty: nowhere.
std::string certificate_path(const std::string& function);
// Of what is known of its requests for GPU memory (proxy/evict/pool_profiles.h).
std::string pool_profile_path(const std::string& function);

}  // namespace tube
