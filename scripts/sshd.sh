#!/usr/bin/env bash
# The server of OpenSSH, which the tests of --on start for themselves.
#
#   scripts/sshd.sh        get it where it is missing, and print the path of a program on stdout that starts it
#
# One that is installed is used. Else Debian's package is unpacked into $EXPCTL_CACHE/sshd and runs from there: nothing is installed, and no
# service starts with the machine. Where that does not run (root without the user `sshd`, another system than Debian's) the package is
# installed, without starting its service. Ends with 75 if it is not there and cannot be fetched: no package source is reached, or this user may not.
set -euo pipefail
. "$(dirname "$0")/common.sh"

folder=$EXPCTL_CACHE/sshd

installed() {
  local program
  for program in "$(command -v sshd || true)" /usr/sbin/sshd /usr/local/sbin/sshd; do
    [ -x "$program" ] && echo "$program" && return 0
  done
  return 1
}

# runs PROGRAM : whether sshd can start with a key of its own.
runs() {
  local key=$EXPCTL_CACHE/sshd.key
  [ -x "$1" ] || return 1
  # Of the system's unit; sshd of root separates its privileges there.
  [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
  [ -e "$key" ] || ssh-keygen -q -t ed25519 -N "" -f "$key" || return 1
  "$1" -t -f /dev/null -h "$key" -o UsePAM=no >&2
}

# download FOLDER PACKAGE... : Debian packages into a folder, with the lists of the system, else with fresh ones of its release.
download() {
  local to=$1; shift
  (cd "$to" && apt-get -q download "$@" >&2) && return 0
  local suite; suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [ -n "$suite" ] && debian_suite "$suite" "$to/suite" && (cd "$to" && apt-get "${apt[@]}" download "$@" >&2)
}

# libraries OPTION... : packages of libraries that the server needs and that are not installed.
libraries() {
  local p
  apt-cache "$@" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances openssh-server |
    grep -E '^lib[a-z0-9.+-]+$' | sort -u |
    while read -r p; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done
}

# unpack : the server into $folder, with a program `run` that starts it there.
unpack() {
  local new=$folder.new root=$folder/root deb options='' paths missing
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
  rm -rf "$new"; mkdir -p "$new/debs" "$new/root"
  apt=()
  download "$new/debs" openssh-server openssh-sftp-server || return 1
  for deb in "$new"/debs/*.deb; do dpkg -x "$deb" "$new/root" || return 1; done
  # Not `grep -q`: what it does not read would end the pipe.
  if { find "$new/root/usr/sbin" "$new/root/usr/lib/openssh" -name 'sshd*' -type f -exec ldd {} + 2>/dev/null || true; } |
    grep 'not found' >/dev/null; then
    missing=$(libraries "${apt[@]}") || return 1
    # shellcheck disable=SC2086 # names of packages
    download "$new/debs" $missing || return 1
    for deb in "$new"/debs/*.deb; do dpkg -x "$deb" "$new/root" || return 1; done
  fi
  paths=$(cd "$new/root" && find . -name '*.so*' -printf "$root/%h\n" | sort -u | paste -sd:)
  # From 9.8 on the server starts other programs, whose paths are compiled in.
  [ ! -e "$new/root/usr/lib/openssh/sshd-session" ] || options+=" -o 'SshdSessionPath=$root/usr/lib/openssh/sshd-session'"
  [ ! -e "$new/root/usr/lib/openssh/sshd-auth" ] || options+=" -o 'SshdAuthPath=$root/usr/lib/openssh/sshd-auth'"
  # sshd wants to be started by its whole path.
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH='\''%s'\''"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\nexec '\''%s'\''%s "$@"\n' \
    "$paths" "$root/usr/sbin/sshd" "$options" > "$new/run"
  chmod 755 "$new/run"
  rm -rf "$new/debs" "$folder" && mv "$new" "$folder"
}

# install_package : the package of the system, without its service.
policy_written=
install_package() {
  local policy=/usr/sbin/policy-rc.d
  # Debian asks this program whether a service may be started. One that is there stays as it is.
  if [ "$(id -u)" = 0 ] && [ ! -e "$policy" ]; then
    policy_written=$policy
    printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy"
  fi
  trap '[ -z "$policy_written" ] || rm -f "$policy_written"' EXIT
  (need_packages "the tests of ssh" openssh-server) || exit 75
  installed || die "openssh-server was installed and is not found"
}

mkdir -p "$EXPCTL_CACHE"
exec 9>"$EXPCTL_CACHE/sshd.lock"
flock -w 900 9 || die "another set-up of OpenSSH does not end" "its lock is $EXPCTL_CACHE/sshd.lock"
if ! command -v ssh >/dev/null || ! command -v ssh-keygen >/dev/null; then
  command -v apt-get >/dev/null || { say "error: no ssh, and no apt-get to install one with"; exit 75; }
  (need_packages "the tests of ssh" openssh-client) || exit 75
fi
installed && exit
runs "$folder/run" && echo "$folder/run" && exit
say "==> the tests of ssh: unpacking Debian's openssh-server into $folder"
unpack && runs "$folder/run" && echo "$folder/run" && exit
command -v apt-get >/dev/null || { say "error: no sshd, and no apt-get to install one with"; exit 75; }
install_package
