# Shared by the set-up scripts: source it, do not run it.
# One cache folder for everything that is fetched or built outside the clone.
EXPCTL_CACHE=${EXPCTL_CACHE:-$HOME/.cache/expctl}
TORCH_VERSION=2.11.0

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$1" >&2; shift; for line; do printf '  hint: %s\n' "$line" >&2; done; exit 1; }

# need_packages WHAT PACKAGE... : install Debian packages that are missing, or say exactly which and stop.
need_packages() {
  local what=$1 missing=() p; shift
  for p; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "==> $what: installing Debian packages: ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=(sudo); else
      die "$what needs Debian packages, and this user may not install them" \
          "ask an administrator to run: apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  "${sudo[@]}" apt-get update -q >/dev/null || say "    apt-get update failed; trying with the lists at hand"
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

# forget_note DIR NAME : remove the note of that name with its pictures; expctl would write a new one beside it. The kinds of pictures are
# listed, because another note's name may begin with this one.
forget_note() {
  local kind
  rm -f "$1/$2.md" "$1/$2_learning.svg"
  for kind in rates stages times boxplot epoch_time timeline ranks scaling learning; do rm -f "$1/assets/images/$2_$kind".{svg,png}; done
}
