#!/usr/bin/env bash
# Compare the files of the last build with those of another commit, in Markdown: `bash ci/compare.sh origin/main`.
# The build of that commit reuses the cache.
set -euo pipefail

commit=${1:?"name a commit, as in: bash ci/compare.sh origin/main"}
out={{out}}

# Print facts from a build's results.json. `name`: the project's name. `files`: TARGET/FILE of each file not rejected.
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

# Set name and `out`, because a config without a name uses the folder's name, and `out` may be outside the project.
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
