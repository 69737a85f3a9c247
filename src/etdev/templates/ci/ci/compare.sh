#!/usr/bin/env bash
# How the files of the last build differ from those of another commit, in Markdown: `bash ci/compare.sh origin/main`.
# What the cache has is not built again.
set -euo pipefail

commit=${1:?"name a commit, as in: bash ci/compare.sh origin/main"}
out={{out}}

# What the results of a build say: with `name`, the project's; with `files`, TARGET/FILE for each that was not rejected.
results() {
    python3 -c '
import json, pathlib, sys
path = pathlib.Path(sys.argv[2], "results.json")
result = json.loads(path.read_text()) if path.is_file() else {"targets": []}
if sys.argv[1] == "name":
    print(result["project"])
else:
    for target in result["targets"]:
        if target["status"] != "rejected":
            print(target["name"], pathlib.PurePath(target["artifact"]).name, sep="/")
' "$1" "$2"
}

built=$(results files "$out")
if [[ -z $built ]]; then
    echo "There is no file in \`$out\` to compare with \`$commit\`."
    exit
fi

base=.base
git worktree add --quiet --detach "$base" "$commit"
trap 'git worktree remove --force "$base"' EXIT
project=$base/$(git rev-parse --show-prefix)
project=${project%/}

# Files get the name of the folder if the config has none for them, and `out` may be a folder outside of the project.
name=$(results name "$out")
(cd "$project" && {{build}} --quiet --set "project.name=$name" --set project.out=build) >&2 ||
    echo "the build of $commit ended with exit code $?" >&2

before=$(results files "$project/build")
found=
while IFS= read -r file; do
    if grep --quiet --line-regexp --fixed-strings -- "$file" <<< "$before"; then
        etdev diff "$project/build/$file" "$out/$file" --output md
        echo
        found=1
    fi
done <<< "$built"
[[ -n $found ]] || echo "No target was built both here and at \`$commit\`."
