#pragma once
using cusparseHandle_t = struct cusparseContext*;
enum cusparseStatus_t : int;
