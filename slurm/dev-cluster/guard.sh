#!/usr/bin/env bash
# End and remove the cluster under DIR once the process OWNER is gone, however it went. up.sh --owner starts this.
#   guard.sh DIR OWNER STARTER      STARTER: the up.sh, which is let finish first
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
D=$1 owner=$2 starter=$3
same() { alive "$1" && [ "$(born "$1")" = "$2" ]; }
owner_born=$(born "$owner") starter_born=$(born "$starter")
while same "$owner" "$owner_born"; do
  [ -d "$D/run" ] || exit 0
  sleep 0.5
done
while same "$starter" "$starter_born"; do sleep 0.1; done
exec "$here/down.sh" "$D" --wipe
