#!/usr/bin/env bash
# Run a command as an ordinary user of the cluster in DIR, from a home of its own: DIR/home/USER, made when first needed.
#   as.sh DIR USER COMMAND...      `nobody` will do; with --dbd, up.sh must have got the user: --users root,nobody
set -euo pipefail
usage="usage: as.sh DIR USER COMMAND..."
D=${1:?$usage} user=${2:?$usage}; shift 2
D=$(cd "$D" && pwd) group=$(id -g "$user") home=$D/home/$user
install -d -m 755 "$D/home"
[ -d "$home" ] || install -d -o "$user" -g "$group" -m 700 "$home"
cd "$home"
exec "$D/enter" setpriv --reuid "$user" --regid "$group" --init-groups env HOME="$home" USER="$user" LOGNAME="$user" "$@"
