#!/usr/bin/env bash
# How the built files differ from those of another commit, in Markdown: `bash ci/compare.sh origin/main`.
# What the cache has is not built again.
set -euo pipefail

out={{out}}
built=()
for file in "$out"/*/*.pte; do
    if [[ -e $file && $file != *.object.pte ]]; then built+=("$file"); fi
done
if [[ ${#built[@]} == 0 ]]; then
    echo "There is no file in \`$out\` to compare with \`$1\`."
    exit
fi

base=.base
git worktree add --quiet --detach "$base" "$1"
trap 'git worktree remove --force "$base"' EXIT
project=$base/$(git rev-parse --show-prefix)
project=${project%/}

# Files get the name of the folder if the config has none for them, and `out` may be a folder outside of the project.
name=$(basename "${built[0]}" .pte)
(cd "$project" && {{build}} --quiet --set "project.name=$name" --set project.out=build) >&2 ||
    echo "the build of $1 ended with exit code $?" >&2

found=
for file in "${built[@]}"; do
    before=$project/build/${file#"$out"/}
    if [[ -e $before ]]; then
        etdev diff "$before" "$file" --output md
        echo
        found=1
    fi
done
[[ -n $found ]] || echo "No target was built both here and at \`$1\`."
