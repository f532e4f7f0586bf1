#pragma once
// Declarations only: libtorch's ProcessGroupGloo.hpp names this header, and the classes it declares hold gloo objects
// behind pointers. The objects themselves are made and used inside libtorch; this project refers to no gloo symbol.
