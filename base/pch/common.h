// What nearly every source includes anyway, parsed once a target (precompiled): four fifths of the
// time to compile a file of this repository is the parsing of these. Sources still include what
// they use; the part `headers` of ./dev test compiles each header without this one.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
