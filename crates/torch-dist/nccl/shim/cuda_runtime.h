#pragma once
// The whole header is for device code.
#include <cuda_runtime_api.h>
