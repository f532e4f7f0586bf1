#!/usr/bin/env bash
# A Chromium without a screen, in which the tests open pages.
#
#   scripts/chromium.sh        install one where none is there, then print the program on stdout
#
# EXPCTL_CHROMIUM names one to be used instead. Ends with 75 if none is there and none can be installed here: no package
# source is reached, or this user may not.
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
  # The shell is half the size of the whole browser; older Debians have only that. Which one there is, is known only once the
  # lists were fetched, as the first try does.
  if ! (need_packages "the browser test" chromium-headless-shell) &&
    { apt-cache show chromium-headless-shell >/dev/null 2>&1 || ! (need_packages "the browser test" chromium); }; then
    # Without the package source, or the right to install, nothing can be done; with both, this is a mistake to be seen.
    [ "$(id -u)" = 0 ] && sudo=() || sudo=(sudo -n)
    "${sudo[@]}" apt-get update -qq -o APT::Update::Error-Mode=any >/dev/null 2>&1 || exit 75
    exit 1
  fi
  found || die "Chromium was installed and is not found"
fi
