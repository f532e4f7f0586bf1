#!/bin/sh
# In the namespaces that node.sh made for NODE: give them what they are for, and become its daemon.
#   inside.sh DIR NODE DAEMON...
set -eu
D=$1 node=$2; shift 2
mount --bind "$D/etc/hosts" /etc/hosts
[ "$node" != ctld ] || exec "$@"
hostname "$node"
# What jobs on the node take its processor for (up.sh --processor).
[ ! -e "$D/etc/cpuinfo.$node" ] || mount --bind "$D/etc/cpuinfo.$node" /proc/cpuinfo
if grep -q '^CGROUP=1' "$D/etc/settings"; then
  # Slurm's groups go below the group that the cluster was started in (a limit of the machine's owner holds for jobs too), in
  # one of the cluster's own: those of two clusters would have the same names.
  group=expctl$(echo "$D" | tr / _)
  mkdir -p "$D/cgroup"
  mount -t tmpfs tmpfs "$D/cgroup"
  while IFS=: read -r _ controller path; do
    case $controller in cpuset | cpu | cpuacct | memory | freezer | devices) ;; *) continue ;; esac
    parent=/sys/fs/cgroup/$controller$path
    mkdir -p "$parent/$group"
    if [ "$controller" = cpuset ]; then
      for f in cpuset.cpus cpuset.mems; do cat "$parent/$f" > "$parent/$group/$f"; done
    fi
    mkdir "$D/cgroup/$controller"
    mount --bind "$parent/$group" "$D/cgroup/$controller"
  done < /proc/self/cgroup
fi
exec "$@"
