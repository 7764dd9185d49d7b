// What the chapters of tests/conformance/ include (base/pch/common.h says what for).
#include "tests/conformance/case.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <thread>
