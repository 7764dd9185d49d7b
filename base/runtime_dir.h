// The folder where a user's proxies put their sockets: $TUBE_DIR, else $XDG_RUNTIME_DIR/tube, else
// /run/tube for root, else /tmp/tube-UID. It must belong to the user and be closed to everyone
// else, because whoever can reach a socket in it can run code on the GPU in the user's name.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tube {

// Where the folder is or would be; touches nothing.
std::string runtime_dir_path();
// The folder, checked: a whole path of a folder (not a link), owned by this user, mode 0700. Error
// code: errno (EINVAL: TUBE_DIR is a relative path, which only tubectl completes; ENOENT: no proxy
// was ever started here).
Result<std::string> find_runtime_dir();
// The same, making it first when it is missing.
Result<std::string> make_runtime_dir();

// [A-Za-z0-9_.-]{1,64}, and not "." or "..".
bool valid_workflow_name(std::string_view name);
std::string data_socket_path(const std::string& runtime_dir, std::string_view workflow);
std::string control_socket_path(const std::string& runtime_dir, std::string_view workflow);
std::string store_socket_path(const std::string& runtime_dir, std::string_view workflow);
std::string owner_file_path(const std::string& runtime_dir, std::string_view workflow);

}  // namespace tube
