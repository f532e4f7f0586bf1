#pragma once
// See algorithm.h: included by ProcessGroupGloo.hpp, nothing of it is needed.
