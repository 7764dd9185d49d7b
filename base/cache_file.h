// Small files of what was learnt, kept between runs in the user's cache folder: $TUBE_CACHE, else
// $XDG_CACHE_HOME/tube, else ~/.cache/tube. TUBE_CACHE=off keeps nothing. All of it may be deleted
// at any time: Tube is slower then for a while.
//
// Any thread. Both block for as long as the disk does.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace tube {

// Empty: nothing is kept, or nobody says where.
std::string cache_dir();

// The file's bytes; empty when there is none, when it is longer than `most_bytes`, or no regular
// file of this user's. What it says is to be trusted as little as any file's.
std::string read_cache(const std::string& name, size_t most_bytes);
// The whole file or nothing: a reader meanwhile sees the old one. Makes the folder (0700) and those
// above it. Error code: errno.
Status write_cache(const std::string& name, const std::string& bytes);

}  // namespace tube
