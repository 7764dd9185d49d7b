// All that a generated entry point uses, and most of those written by hand.
#pragma once

#include "hook/objects/capture.h"
#include "hook/objects/entry.h"
#include "hook/objects/handles.h"
#include "hook/objects/progress.h"
#include "hook/objects/request.h"
