#!/usr/bin/env bash
# The whole check of the GPU path in one call on a machine that has one: doctor, the main job on
# `cuda`, its certificate and `confirm`, the tests marked `gpu`, cheats and honest kernels, A/A
# samples, and the author's and the rewritten program timed by themselves. Clocks stay as they are.
#
#   benchmarks/gpu_check.sh [STAGE ...]         all stages, or those named (see gpu_check.py)
#
# Needs nvcc, a driver and cudaops' packages: installed, or in .gpu/site.tar.xz (gpu_pack.sh makes it
# where PyPI can be reached). Writes gpu_check.md and gpu_check.tar.gz into $OUT (default: here).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
if [ -f .gpu/site.tar.xz ] && [ ! -d /tmp/cudaops-site ]; then
    mkdir /tmp/cudaops-site
    tar -C /tmp/cudaops-site -xf .gpu/site.tar.xz
fi
if [ -d /tmp/cudaops-site ]; then export PYTHONPATH=/tmp/cudaops-site:$PWD; fi
# NVIDIA's reader of .ncu-rep files lies beside ncu where its wheel is not installed.
for reader in "$(dirname "$(readlink -f "$(command -v ncu)")")" /opt/nvidia/nsight-compute/*; do
    reader=$reader/extras/python
    if [ -f "$reader/ncu_report.py" ]; then
        export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$reader
        break
    fi
done
exec "$python" benchmarks/gpu_check.py "$@"
