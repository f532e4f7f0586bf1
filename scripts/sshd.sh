#!/usr/bin/env bash
# The server of OpenSSH, which the tests of --on start for themselves.
#
#   scripts/sshd.sh        install it where it is missing, without starting a service, then print its path on stdout
#
# Ends with 75 if it is not there and cannot be installed here: no package source is reached, or this user may not.
set -euo pipefail
. "$(dirname "$0")/common.sh"

found() {
  local program
  for program in "$(command -v sshd || true)" /usr/sbin/sshd /usr/local/sbin/sshd; do
    [ -x "$program" ] && echo "$program" && return 0
  done
  return 1
}

mkdir -p "$EXPCTL_CACHE"
exec 9>"$EXPCTL_CACHE/sshd.lock"
flock -w 900 9 || die "another installation of OpenSSH does not end" "its lock is $EXPCTL_CACHE/sshd.lock"
if ! found >/dev/null || ! command -v ssh >/dev/null || ! command -v ssh-keygen >/dev/null; then
  command -v apt-get >/dev/null || { say "error: no sshd, and no apt-get to install one with"; exit 75; }
  # Debian asks this program whether a service may be started. One that is there is left alone.
  policy=/usr/sbin/policy-rc.d made=
  if [ "$(id -u)" = 0 ] && [ ! -e "$policy" ]; then
    made=$policy
    printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy"
  fi
  trap '[ -z "$made" ] || rm -f "$made"' EXIT
  (need_packages "the tests of ssh" openssh-server openssh-client) || exit 75
  found >/dev/null || die "openssh-server was installed and is not found"
fi
found
