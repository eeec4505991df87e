#!/usr/bin/env bash
# `make image`: builds the Containerfile with buildah on a base of Debian's packages, pulls no image, and tries what was
# made: it must start a cluster as its own user. Needs root, buildah and debootstrap; the base is kept for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in buildah debootstrap; do
  command -v "$program" >/dev/null || { echo "$program is not installed: nothing is built" >&2; exit 1; }
done
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot  # both work where there is no overlay and nothing may be mounted
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kubeqos/image
base=localhost/kubeqos-base
mkdir -p "$cache"
image() { buildah --root "$cache/store" --runroot "$cache/run" "$@"; }

if ! image inspect --type image "$base" >/dev/null 2>&1; then
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$made" >"$cache/debootstrap.log"
  container=$(image from scratch)
  image add -q "$container" "$made" / >/dev/null
  image commit -q "$container" "$base" >/dev/null
  image rm "$container" >/dev/null
fi

words=(--build-arg "BASE=$base")
for name in PIP_INDEX_URL PIP_CERT PIP_DEFAULT_TIMEOUT; do
  [[ -z ${!name:-} ]] || words+=(--build-arg "$name=${!name}")
done
[[ -z ${PIP_CERT:-} ]] || words+=(--volume "$PIP_CERT:$PIP_CERT:ro")
image bud -q --network host "${words[@]}" --tag localhost/kubeqos . >/dev/null

container=$(image from localhost/kubeqos)
run() { image run --network host --user kubeqos "$container" -- "$@"; }
run sh -c 'test "$(id -un)" = kubeqos && kubeqos --version && kubeqos up --detach --port 0 --nodes 2 >/dev/null 2>&1 &&
  kubeqos status && kubeqos down --delete'
image rm "$container" >/dev/null
echo "localhost/kubeqos"
