// The bytes of an object of a workflow's store, for `tubectl store --get`: this process joins the
// workflow as a function would, by the hook's library.
#pragma once

#include <string>

#include "base/result.h"

namespace tube::ctl {

// Writes them to the descriptor. The error is a sentence for the user.
Status write_object(const std::string& hook_lib, const std::string& workflow,
                    const std::string& name, int fd);

}  // namespace tube::ctl
