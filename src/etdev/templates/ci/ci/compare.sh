#!/usr/bin/env bash
# How the built files differ from those of another commit, in Markdown: `bash ci/compare.sh origin/main`.
# What the cache has is not built again.
set -euo pipefail

base=.base
git worktree add --quiet --detach "$base" "$1"
trap 'git worktree remove --force "$base"' EXIT
project=$base/$(git rev-parse --show-prefix)

(cd "$project" && {{build}} --quiet) >&2 || echo "the build of $1 ended with exit code $?" >&2

found=
for file in build/*/*.pte; do
    case $file in *.object.pte) continue ;; esac
    if [[ -e $file && -e $project/$file ]]; then
        etdev diff "${project%/}/$file" "$file" --output md
        echo
        found=1
    fi
done
[[ -n $found ]] || echo "No target was built both here and at \`$1\`."
