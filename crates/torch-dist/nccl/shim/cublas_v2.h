#pragma once
// What libtorch's headers name of it, and nothing of which an object is made here.
using cublasHandle_t = struct cublasContext*;
enum cublasStatus_t : int;
