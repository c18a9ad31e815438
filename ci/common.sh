# Shared by the scripts of ci/: where things are, what is installed, how a step is told.
# Sourced, never run.
set -euo pipefail

dyncp_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dyncp_started=$SECONDS
cd "$dyncp_root"

# step WORDS...: says what happens next.
step() { printf '\n== %s (at %d s)\n' "$*" "$((SECONDS - dyncp_started))"; }

# fail CODE WORDS...: one clear line, then the exit code (docs/architecture.md lists them).
fail() {
  local code=$1
  shift
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit "$code"
}

# need_packages GROUP...: installs what is missing of these groups of ci/packages.txt, or prints the
# exact command when this user may not install and exits 3.
need_packages() {
  command -v dpkg-query >/dev/null || {
    echo "not a Debian system: assuming that the packages of ci/packages.txt are there"
    return 0
  }
  local groups=" $* " missing=() name group
  while read -r name group; do
    case "$name" in '' | '#'*) continue ;; esac
    case "$groups" in *" $group "*) ;; *) continue ;; esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done <ci/packages.txt
  [ ${#missing[@]} -gt 0 ] || return 0
  local command="apt-get install -y --no-install-recommends ${missing[*]}"
  local as_root=(env)
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n env)
    else
      fail 3 "missing packages and no right to install them; run: sudo $command"
    fi
  fi
  step "installing ${missing[*]}"
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null ||
    fail 3 "apt-get update failed; run by hand: $command"
  # shellcheck disable=SC2086  # the command is a list of words
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive $command >/dev/null ||
    fail 3 "installation failed; run by hand: $command"
}

# say_left_out: one line on the optional parts this machine has no use for.
say_left_out() {
  local out=()
  command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || out+=("GPU tests (no GPU)")
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || out+=("CUDA kernels (no nvcc)")
  command -v mpirun >/dev/null || out+=("MPI ranks (no mpirun)")
  if [ ${#out[@]} -gt 0 ]; then
    local IFS=,
    echo "left out on this machine: ${out[*]/#/ }"
  fi
}

# build PRESET [TARGET...]: configures and builds; the configure log is shown only when it fails.
build() {
  local preset=$1 log
  shift
  step "building preset $preset"
  log=$(mktemp)
  if ! cmake --preset "$preset" "${dyncp_configure_options[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail 1 "configuring preset $preset failed"
  fi
  grep -h '^-- dyncp:' "$log" || true
  rm -f "$log"
  cmake --build --preset "$preset" ${1:+--target "$@"}
}
dyncp_configure_options=()
