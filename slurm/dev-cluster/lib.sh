# Shared by the scripts of the cluster: source it, do not run it.

# A zombie counts as gone: in a container, process 1 may take seconds to reap it.
alive() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }

# When a process began, in clock ticks since boot: a number alone may be given to another process.
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# tries N COMMAND...: until it succeeds, at most N times, a tenth of a second apart
tries() {
  local n=$1; shift
  for ((; n > 0; n--)); do "$@" && return; sleep 0.1; done
  return 1
}

# network head|NODE: set `inside` to the words that start a command in that part of the cluster's network (none without --netns)
network() { inside=(); [ -z "$NETNS" ] || inside=(nsenter "--net=/run/netns/$NETNS-$1"); }
