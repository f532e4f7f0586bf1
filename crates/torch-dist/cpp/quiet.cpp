#include "quiet.h"

#include <c10/util/Flags.h>

#include <dlfcn.h>
#include <netdb.h>

#include <cstdlib>

C10_DECLARE_int(caffe2_log_level);

namespace torch_dist {

void quiet() {
  constexpr int fatal = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = fatal;
  }
}

} // namespace torch_dist

// c10d asks for the host names of both ends of every connection, in the server's only thread too, and uses them in log lines
// alone. For ::ffff:127.0.0.1, its way to write a loopback address, /etc/hosts has no name, so each connection waited for a
// name server: 5 s for each answer that is lost, 10 s where none answers. This function comes before the C library's and
// gives addresses as numbers.
extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address,
    socklen_t length,
    char* host,
    socklen_t host_size,
    char* service,
    socklen_t service_size,
    int flags) {
  using Function = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getnameinfo"));
  if (real == nullptr) {
    return EAI_SYSTEM;
  }
  return real(address, length, host, host_size, service, service_size, (flags & ~NI_NAMEREQD) | NI_NUMERICHOST);
}
