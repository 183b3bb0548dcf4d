#!/bin/sh
# Makes a release of the version that pyproject.toml names:
#
#     sh scripts/setup.sh sh scripts/release.sh [--dry-run]
#
# It checks that nothing is uncommitted, that CHANGELOG.md has a section of the version and that there
# is no such tag yet. Then it builds the sdist, a wheel for each platform, the list of packages and,
# where docker is, the image; the tag comes last, so a release that failed can be run again. It
# publishes nothing: push the tag and upload dist/ yourself. With --dry-run it checks, and says what it
# would do.
set -eu
cd "$(dirname "$0")/.."

die() {
    printf 'release: %s\n' "$*" >&2
    exit 1
}

case "${1:-}" in
"") run= ;;
--dry-run) run="echo" ;;
*) die "usage: sh scripts/release.sh [--dry-run]" ;;
esac

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ -n "$version" ] || die "pyproject.toml has no line version = \"...\""
tag=v$version
[ -z "$(git status --porcelain)" ] || die "some files are not committed: commit them, or git stash"
! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null ||
    die "there is a tag $tag already: raise the version in pyproject.toml"
changes=$(awk -v title="## $version" '/^## /{on = index($0 " ", title " ") == 1; next} on' CHANGELOG.md)
[ -n "$(printf '%s' "$changes" | tr -d '[:space:]')" ] ||
    die "CHANGELOG.md has nothing under '## $version': rename '## Unreleased'"

$run python -m build --no-isolation --outdir dist .
for platform in manylinux_2_17_x86_64 manylinux_2_17_aarch64 macosx_11_0_x86_64 macosx_11_0_arm64; do
    $run python -m pip wheel --no-deps --no-build-isolation --no-index --wheel-dir dist \
        "--config-settings=--build-option=--plat-name=$platform" "dist/nats_transform-$version.tar.gz"
done
$run sh scripts/sbom.sh
if command -v docker >/dev/null 2>&1; then
    $run docker build --file deploy/Dockerfile --tag "nats-transform:$version" .
else
    echo "release: no docker here, so no image"
fi
# git would take the titles of the section for comments, and leave them out.
$run git tag --annotate "$tag" --cleanup=whitespace --message "nats-transform $version" --message "$changes"
