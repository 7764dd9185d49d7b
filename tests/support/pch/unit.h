// The same for unit tests (base/pch/common.h).
#include <gtest/gtest.h>

#include "base/pch/common.h"
