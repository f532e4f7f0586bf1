#pragma once
// nccl.h includes it and names nothing of it.
