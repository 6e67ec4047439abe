// What kernels of the program level are written in: `cr::load(core, x, {0, column}, {1, 64})`.
#pragma once
#include "crossrank/program/remote.h"
#include "crossrank/program/scalar.h"

namespace cr = crossrank::program;
using crossrank::CommContext;
using crossrank::Slot;
using crossrank::Status;
