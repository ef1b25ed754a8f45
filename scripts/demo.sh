#!/bin/sh
# The main job, start to end, on a real model: build a context, fork it, continue two branches, measure, verify.
#   demo.sh PATH_OF_RAMET
set -eu
ramet=$(realpath "${1:?usage: demo.sh PATH_OF_RAMET}")
cd "$(dirname "$0")/.."

if path=$(scripts/get_model.py smollm2); then
    model=$(basename "$path" .gguf)
    prompt="Once upon a time there was a small lighthouse at the edge of the sea, and the woman who kept it knew"
else
    model=tiny-llama-kjv-q8_0
    prompt="And the LORD said unto Moses, Go in unto Pharaoh, and say unto him, Let"
    echo "demo: no network, so this uses the small model that comes with the repository, $model;" >&2
    echo "demo: it was trained on the King James Bible alone and knows nothing else" >&2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Shows a command as one would type it, then runs it.
step() {
    printf '\n$ ramet'
    for word in "$@"; do
        case $word in
            *[!A-Za-z0-9_./:=-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$ramet" "$@"
}

step ctx build -m "$model" -o demo.ramet -p "$prompt"
step ctx info demo.ramet
step ctx fork -m "$model" -i demo.ramet -n 8
step run -m "$model" -i demo.ramet -n 24 --seed 1
step run -m "$model" -i demo.ramet -n 24 --seed 2
step bench -m "$model" --prompt 256 --gen 32 --reps 1
step verify -m "$model"
