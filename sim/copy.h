// What memcpy.cc needs of the copy engine besides work.h.
#pragma once

#include "sim/work.h"

namespace tube::sim {

// Takes the bytes of a host source now, so that the program may reuse it when the call returns. Without the lock.
void stage_source(CopyWork& work);

}  // namespace tube::sim
