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

# debian_suite SUITE WORK : make apt-get read another suite of Debian, apart from the system's lists and packages, with its files in WORK/apt.
# Sets `apt`, the options that do so. Fails, with the reason in WORK/apt/log, where the suite cannot be read.
debian_suite() {
  local suite=$1 work=$2 mirror
  mkdir -p "$work"/apt/{lists/partial,cache/archives/partial}
  : > "$work/apt/status"
  # The machine's own mirror, so that whatever reaches it reaches this suite too.
  mirror=$(awk '$1 == "URIs:" && $2 ~ /debian\/?$/ { print $2; exit }
                $1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^http.*debian\/?$/) { print $i; exit } }' \
           /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $suite main" \
    > "$work/apt/sources.list"
  apt=(-q -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
       -o Dir::State::lists="$work/apt/lists" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache"
       -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root -o DPkg::Post-Invoke= -o APT::Update::Post-Invoke=
       -o APT::Update::Post-Invoke-Success= -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  apt-get "${apt[@]}" update >"$work/apt/log" 2>&1
}

# forget_note DIR NAME : remove the note of that name with its pictures; expctl would write a new one beside it. The kinds of pictures are
# listed, because another note's name may begin with this one.
forget_note() {
  local kind
  rm -f "$1/$2.md" "$1/$2_learning.svg"
  for kind in rates stages times boxplot epoch_time timeline ranks scaling learning; do rm -f "$1/assets/images/$2_$kind".{svg,png}; done
}
