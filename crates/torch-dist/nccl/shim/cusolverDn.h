#pragma once
using cusolverDnHandle_t = struct cusolverDnContext*;
