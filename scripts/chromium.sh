#!/usr/bin/env bash
# A Chromium without a screen, in which the tests open pages.
#
#   scripts/chromium.sh        install one where none is there, then print the program on stdout
#
# EXPCTL_CHROMIUM names one to be used instead. Ends with 75 if none is there and no package source can be reached.
set -euo pipefail
. "$(dirname "$0")/common.sh"

if [ -n "${EXPCTL_CHROMIUM:-}" ]; then
  # Another browser than the one that was asked for would not be what was tested.
  command -v "$EXPCTL_CHROMIUM" || die "EXPCTL_CHROMIUM is $EXPCTL_CHROMIUM, which is no program" "name one, or unset it"
  exit
fi

found() {
  for program in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$program" && return 0
  done
  return 1
}

mkdir -p "$EXPCTL_CACHE"
exec 9>"$EXPCTL_CACHE/chromium.lock"
flock -w 900 9 || die "another installation of Chromium does not end" "its lock is $EXPCTL_CACHE/chromium.lock"
if ! found; then
  command -v apt-get >/dev/null || { say "error: no Chromium, and no apt-get to install one with"; exit 75; }
  # The shell is half the size of the whole browser; older Debians have only that.
  apt-cache show chromium-headless-shell >/dev/null 2>&1 && package=chromium-headless-shell || package=chromium
  if ! (need_packages "the browser test" "$package"); then
    # Without the package source nothing can be done; with it, this is a mistake to be seen.
    host=$(sed -n 's|^.*https\?://\([^/ ]*\).*$|\1|p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
    if [ -z "$host" ] || ! timeout 5 bash -c "exec 3<>/dev/tcp/$host/80" 2>/dev/null; then exit 75; fi
    exit 1
  fi
  found || die "Chromium was installed and is not found"
fi
